import torch
from torch import nn

from didact.layers.mirror import Mirrored


def test_judged_alike_whichever_way_it_faces():
    torch.manual_seed(0)
    net = Mirrored(nn.Sequential(nn.Flatten(), nn.Linear(24, 3)))
    x = torch.randn(5, 1, 4, 6)
    assert torch.equal(net.train()(x), net.network(x))
    torch.testing.assert_close(net.eval()(x), net(x.flip(-1)))
    torch.testing.assert_close(net(x), (net.network(x) + net.network(x.flip(-1))) / 2)
    assert not torch.allclose(net(x), net.network(x))
