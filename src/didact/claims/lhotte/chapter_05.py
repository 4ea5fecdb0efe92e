"""Lhotte, chapter 5: linear layers and universal approximation."""

from didact.claims.forms import Printed
from didact.claims.gaba.chapter_01 import steepest_sigmoid
from didact.claims.registry import claim

claim("CL22", Printed("0.25"))(steepest_sigmoid)
