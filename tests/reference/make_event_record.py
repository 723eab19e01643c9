# SPDX-License-Identifier: Apache-2.0
"""Prints, in hex, the record of an event as TensorBoard writes it, for
tests/python/metrics_test.py: python make_event_record.py (needs tensorboard)."""
import io

from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.summary.writer.record_writer import RecordWriter

value = summary_pb2.Summary.Value(tag="loss", simple_value=2.5)
event = event_pb2.Event(wall_time=1.5, step=300, summary=summary_pb2.Summary(value=[value]))
file = io.BytesIO()
RecordWriter(file).write(event.SerializeToString())
print(file.getvalue().hex())
