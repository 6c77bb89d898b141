"""Speed of reading, answering and decoding, beside what the hardware allows.

    from longctx.core.measure.bench.shapes import Wanted
    from longctx.core.measure.bench.ingesting import ingest
    report = ingest(Wanted(shape="llama-3.1-8b"), [131072, 1048576], on_note=print)
    print(json.dumps(report.as_dict()))

Ceilings of the device and the disk are measured in the same run; floors are reckoned from them.
"""
