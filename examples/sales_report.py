"""Totals, trend and a chart of sales.csv, as a model would write it when asked for a report."""

import csv
from collections import Counter
from decimal import Decimal

from PIL import Image, ImageDraw

by_region, by_product, by_month = Counter(), Counter(), Counter()
rows = 0
with open("sales.csv", newline="", encoding="utf-8") as file:
    for sale in csv.DictReader(file):
        revenue = int(sale["units"]) * Decimal(sale["unit_price"])
        by_region[sale["region"]] += revenue
        by_product[sale["product"]] += revenue
        by_month[sale["date"][:7]] += revenue
        rows += 1

print(f"Sales report: {rows} sales, {sum(by_region.values()):.2f} in all")
for title, totals in (("Revenue by region", by_region), ("Revenue by product", by_product)):
    print(f"\n{title}")
    for name, total in totals.most_common():
        print(f"  {name:<14}{total:>12.2f}")

print("\nRevenue by month, and its change")
before = None
for month in sorted(by_month):
    change = f"{(by_month[month] / before - 1) * 100:+.1f} %" if before else ""
    print(f"  {month:<14}{by_month[month]:>12.2f}{change:>12}")
    before = by_month[month]

# One bar a month, as high as its revenue: the highest fills the plot.
WIDTH, HEIGHT, LEFT, BOTTOM, PLOT, BAR, STEP = 800, 400, 40, 350, 300, 40, 62
picture = Image.new("RGB", (WIDTH, HEIGHT), "white")
draw = ImageDraw.Draw(picture)
draw.text((LEFT, 15), "Revenue by month", fill="black")
highest = max(by_month.values())
for index, month in enumerate(sorted(by_month)):
    left = LEFT + index * STEP
    top = BOTTOM - round(PLOT * by_month[month] / highest)
    draw.rectangle((left, top, left + BAR - 1, BOTTOM - 1), fill=(31, 119, 180))
    draw.text((left, BOTTOM + 8), month[2:], fill="black")
draw.line((LEFT - 5, BOTTOM, WIDTH - 20, BOTTOM), fill="black")
picture.save("report.png")
