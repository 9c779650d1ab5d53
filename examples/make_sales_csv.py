#!/usr/bin/python3
"""Writes the sales that examples/sales_report.py reads: make_sales_csv.py PATH

One line a sale, in no order, like an export of a shop's till: date, region, product, units, price of
one unit. 4,000 sales of the year 2025, always the same ones: the generator is seeded. Sales grow over
the year and peak in November and December; regions differ in size, products in price. So that reading
it takes some care, as real data does, one product's name holds a comma and one region's an umlaut.
"""

import csv
import datetime
import random
import sys

SALES = 4000
REGIONS = {"North": 5, "South": 3, "West": 4, "Östra": 2}
PRODUCTS = {"Kettle": "24.90", "Lamp, small": "12.50", "Lamp, large": "39.00", "Chair": "89.95", "Desk": "249.00"}
MONTHS = [6, 6, 7, 7, 8, 8, 8, 9, 9, 10, 14, 16]


def sales(generator):
    for _ in range(SALES):
        month = generator.choices(range(1, 13), MONTHS)[0]
        day = generator.randint(1, 28)
        region = generator.choices(list(REGIONS), list(REGIONS.values()))[0]
        product = generator.choice(list(PRODUCTS))
        units = generator.choice([1, 1, 1, 2, 2, 3, 5, 10])
        yield datetime.date(2025, month, day).isoformat(), region, product, units, PRODUCTS[product]


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with open(sys.argv[1], "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["date", "region", "product", "units", "unit_price"])
        writer.writerows(sales(random.Random(20250101)))


if __name__ == "__main__":
    main()
