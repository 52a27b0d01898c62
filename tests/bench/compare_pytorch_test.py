#!/usr/bin/env python3
"""Tests that Ingot accepts every model of bench/compare_pytorch.py in both dtypes. Nothing is timed, and PyTorch is not needed.

  tests/bench/compare_pytorch_test.py INGOT"""
import importlib.util
import pathlib
import subprocess
import sys
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "bench/compare_pytorch.py"
spec = importlib.util.spec_from_file_location("compare_pytorch", SCRIPT)
compare_pytorch = importlib.util.module_from_spec(spec)
sys.dont_write_bytecode = True
spec.loader.exec_module(compare_pytorch)
INGOT = sys.argv.pop(1)


class Models(unittest.TestCase):
    # The model of bench/gpu was refused on a CPU: its settings are a GPU's.
    def test_ingot_takes_their_settings(self):
        for name in compare_pytorch.MODELS:
            for dtype in ("f32", "bf16"):
                with self.subTest(model=name, dtype=dtype):
                    command = [INGOT, "train", "--print-config", *compare_pytorch.ingot_model(name, dtype, threads=1)]
                    result = subprocess.run(command, capture_output=True, text=True)
                    self.assertEqual(result.returncode, 0, result.stderr)


if __name__ == "__main__":
    unittest.main()
