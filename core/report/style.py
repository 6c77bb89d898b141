"""How a page looks: light and dark, narrow and wide, on paper; and the colours of rates."""

from longctx.core.report.svg import RATES, between

STEPS = 10  # colours of rates: r0 for 0 to r10 for 1


def rate_class(rate: float) -> str:
    """The class of a cell with a rate from 0 to 1."""
    return f"r{round(min(max(rate, 0.0), 1.0) * STEPS)}"


_RATES = "\n".join(
    f".r{step} {{ background: {between(step / STEPS, RATES)}; color: #1f2328 }}"
    for step in range(STEPS + 1)
)
STYLE = f"""\
:root {{
  color-scheme: light dark;
  --ground: #ffffff; --text: #1f2328; --soft: #59636e; --rule: #d1d9e0; --raised: #f6f8fa;
  --mark: #fff3b8; --strong: #ffd866; --edge: #0969da; --bar: #0969da;
}}
@media (prefers-color-scheme: dark) {{
  :root {{
    --ground: #15191e; --text: #e6edf3; --soft: #9198a1; --rule: #3d444d; --raised: #1c2128;
    --mark: #4d4420; --strong: #7d6411; --edge: #4493f8; --bar: #4493f8;
  }}
}}
* {{ box-sizing: border-box }}
body {{
  margin: 0 auto; padding: 1.5rem 1rem 3rem; max-width: 60rem;
  background: var(--ground); color: var(--text);
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", sans-serif;
}}
h1 {{ font-size: 1.5rem; line-height: 1.25; margin: 0 0 .5rem }}
h2 {{ font-size: 1.25rem; line-height: 1.3; margin: 2.5rem 0 .5rem }}
h3 {{ font-size: 1rem; margin: 1.75rem 0 .5rem }}
h1, h2, h3, p, figcaption, li {{ overflow-wrap: anywhere; unicode-bidi: isolate }}
td, th {{ overflow-wrap: break-word; unicode-bidi: isolate }}
a {{ color: var(--edge) }}
.soft {{ color: var(--soft); font-size: .875rem }}
.answer {{ font-size: 1.125rem; white-space: pre-wrap; margin: .75rem 0 }}
blockquote {{ margin: .75rem 0; padding: .25rem 0 .25rem 1rem; border-left: 3px solid var(--edge) }}
blockquote p {{ margin: 0; white-space: pre-wrap }}
figure {{ margin: 1rem 0 }}
figcaption {{ color: var(--soft); font-size: .875rem; margin-bottom: .25rem }}
pre {{
  margin: 0; padding: .5rem .75rem; background: var(--raised); border: 1px solid var(--rule);
  border-radius: 6px; font: .8125rem/1.6 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace;
  white-space: pre-wrap; overflow-wrap: anywhere; unicode-bidi: isolate; tab-size: 4;
}}
.around {{ color: var(--soft) }}
mark {{ background: var(--mark); color: inherit; border-radius: 2px }}
mark.strong {{ background: var(--strong); font-weight: 600 }}
mark.line {{ background: none; text-decoration: underline; text-underline-offset: .2em }}
svg {{ display: block; max-width: 100%; height: auto }}
svg.strip {{ width: 100%; height: 3.25rem }}
.bin {{ fill: var(--bar) }}
.ground-of-strip {{ fill: var(--raised) }}
.border {{ fill: var(--rule) }}
.tick {{ fill: var(--text) }}
.wide {{ overflow-x: auto }}
table {{ border-collapse: collapse; font-size: .875rem; margin: .5rem 0 }}
th, td {{ padding: .25rem .6rem; text-align: left; vertical-align: top }}
th {{ font-weight: 600 }}
tbody tr {{ border-top: 1px solid var(--rule) }}
td.number, th.number {{
  text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap;
}}
thead th {{ white-space: nowrap }}
table.grid thead th + th {{ text-align: center }}
table.grid td {{ text-align: center; min-width: 3.5rem; border: 1px solid var(--ground) }}
table.grid small {{ display: block; opacity: .75 }}
table.facts th {{ color: var(--soft); font-weight: 400; white-space: nowrap }}
details {{ margin: .75rem 0 }}
summary {{ cursor: pointer }}
{_RATES}
@media (max-width: 34rem) {{
  body {{ padding: 1rem .75rem 2rem }}
  th, td {{ padding: .25rem .35rem }}
}}
@media print {{
  :root {{ --ground: #fff; --text: #000; --soft: #444; --rule: #bbb; --raised: #fff }}
  body {{ max-width: none; padding: 0; font-size: 10pt }}
  * {{ print-color-adjust: exact; -webkit-print-color-adjust: exact }}
  h2, h3, figcaption {{ break-after: avoid }}
  pre, figure, tr {{ break-inside: avoid }}
  nav {{ display: none }}
}}
"""
