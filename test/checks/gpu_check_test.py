"""tools/gpu_check.sh where there is nothing to check with, and what tools/gpu_report.py makes of its findings."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[2] / "tools"
NVIDIA_SMI = "#!/bin/sh\necho '{says}'\nexit {status}\n"
JUNIT = """<testsuite tests="3" failures="1" skipped="1" disabled="0">
<testcase name="engine_run_test" status="run"/><testcase name="engine_cuda_test" status="fail"><failure message=""/></testcase>
<testcase name="hooks_test" status="notrun"><skipped message=""/></testcase></testsuite>"""


class GpuCheck(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def check(self, programs, **variables):
        """Runs it with no programs but these and the few that it needs itself."""
        path = self.folder / "bin"
        path.mkdir()
        for needed in ("bash", "dirname", "nproc", "sed", "sort", "head", "realpath"):
            (path / needed).symlink_to(shutil.which(needed))
        for name, text in programs.items():
            (path / name).write_text(text)
            (path / name).chmod(0o755)
        environment = {"PATH": str(path), **variables}
        return subprocess.run([str(TOOLS / "gpu_check.sh"), "--out", str(self.folder / "out")], env=environment,
                              capture_output=True, text=True)

    def refuses(self, because, programs, **variables):
        result = self.check(programs, **variables)
        self.assertEqual(result.returncode, 2, result.stdout + result.stderr)
        self.assertIn(because, result.stderr)
        self.assertIn("nothing was checked on a GPU", result.stderr)
        self.assertFalse((self.folder / "out").exists())

    def torch(self, version, cuda):
        """A LibTorch as far as the script looks at it."""
        folder = self.folder / "torch/share/cmake/Torch"
        folder.mkdir(parents=True)
        (folder / "TorchConfig.cmake").touch()
        (folder / "TorchConfigVersion.cmake").write_text(f'set(PACKAGE_VERSION "{version}")\n')
        (self.folder / "torch/lib").mkdir()
        if cuda:
            (self.folder / "torch/lib/libtorch_cuda.so").touch()
        return str(folder)

    def test_without_a_driver(self):
        self.refuses("no GPU here: nvidia-smi, which comes with the driver, is not installed", {})

    def test_with_a_driver_that_fails(self):
        self.refuses("nvidia-smi says: NVIDIA-SMI has failed",
                     {"nvidia-smi": NVIDIA_SMI.format(says="NVIDIA-SMI has failed", status=9)})

    def test_with_no_gpu_in_the_list(self):
        self.refuses("nvidia-smi lists none", {"nvidia-smi": "#!/bin/sh\nexit 0\n"})

    def test_without_libtorch(self):
        self.refuses("no LibTorch", {"nvidia-smi": NVIDIA_SMI.format(says="Some GPU, 1, 2 MiB", status=0)})

    def test_with_a_libtorch_without_cuda(self):
        self.refuses("is a build without CUDA", {"nvidia-smi": NVIDIA_SMI.format(says="Some GPU, 1, 2 MiB", status=0)},
                     Torch_DIR=self.torch("2.13.0", cuda=False))

    def test_with_an_old_libtorch(self):
        self.refuses("LibTorch 2.9.1 is older than 2.11",
                     {"nvidia-smi": NVIDIA_SMI.format(says="Some GPU, 1, 2 MiB", status=0)},
                     Torch_DIR=self.torch("2.9.1", cuda=True))


class GpuReport(unittest.TestCase):
    def test_tells_passed_failed_and_skipped_apart(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "tests.xml").write_text(JUNIT)
            cases = [{"name": "A_CUDA", "result": "COMPLETED"}, {"name": "B_CUDA", "result": "COMPLETED", "failures": [{}]},
                     {"name": "C_MultiCUDA", "result": "SKIPPED"}]
            (folder / "cuda_tests.json").write_text(json.dumps({"testsuites": [{"name": "Cuda", "testsuite": cases}]}))
            environment = {**os.environ, "GPUS": "Some GPU", "TORCH": "2.13.0", "NVCC": "13.0", "FAILED": "tests", "COMMIT": "abc"}
            subprocess.run([sys.executable, "-B", str(TOOLS / "gpu_report.py"), name], env=environment, check=True,
                           stdout=subprocess.DEVNULL)
            report = json.loads((folder / "gpu_check.json").read_text())
            self.assertEqual(report["cuda_cases"],
                             {"Cuda.A_CUDA": "passed", "Cuda.B_CUDA": "failed", "Cuda.C_MultiCUDA": "skipped"})
            self.assertEqual(report["tests"]["failed"], ["engine_cuda_test"])
            page = (folder / "gpu_check.md").read_text()
            self.assertIn("3 tests, 1 failed, 1 skipped.", page)
            self.assertIn("Failed: tests", page)


if __name__ == "__main__":
    unittest.main()
