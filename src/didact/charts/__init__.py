"""SVG charts and HTML without a plotting library: one offline file that follows light and dark, with real text.

    svg      lines, dots, bars, bands, heat maps, stacked bars
    scale    axes and round ticks
    html     markup by construction, escaped
    format   metrics, durations, arguments and sources as text
"""

from didact.charts.html import Html, tag
from didact.charts.svg import Cell, Series, draw_chart, draw_heatmap, draw_stacked_bars

__all__ = ["Cell", "Html", "Series", "draw_chart", "draw_heatmap", "draw_stacked_bars", "tag"]
