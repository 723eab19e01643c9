# SPDX-License-Identifier: Apache-2.0
"""Makes config_defaults.json: what the config classes of several versions of Hugging Face's
transformers write to the config.json of each family of weft.

    python tests/reference/make_config_defaults.py FOLDER ...

FOLDER holds the package `transformers` of one version (`pip download --no-deps`, unpacked), oldest
first; more paths that it needs may follow after colons. The file has {"versions": [...], family:
{key: [[default, first version, last version], ...]}}, the versions by their place in the list."""

import json
import pathlib
import subprocess
import sys
import types

FAMILIES = ("llama mistral qwen2 qwen3 smollm3 granite olmo2 phi3 gemma gemma2 gemma3_text gpt2 "
            "gpt_neox starcoder2 stablelm bert modernbert mixtral qwen2_moe qwen3_moe deepseek_v2 "
            "deepseek_v3").split()


def print_defaults(folders):
    sys.path[:0] = folders.split(":")
    # Only config classes are used: versions of other packages do not matter.
    check = types.ModuleType("transformers.dependency_versions_check")
    check.dep_version_check = lambda *given: None
    sys.modules[check.__name__] = check
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    found = {}
    for family in FAMILIES:
        if family in CONFIG_MAPPING:
            found[family] = json.loads(CONFIG_MAPPING[family]().to_json_string(use_diff=False))
            del found[family]["transformers_version"]
    print(json.dumps([transformers.__version__, found]))


def main():
    versions, defaults = [], {family: {} for family in FAMILIES}
    for number, folders in enumerate(sys.argv[1:]):
        done = subprocess.run([sys.executable, __file__, "--one", folders], check=True,
                              capture_output=True, text=True)
        version, found = json.loads(done.stdout.splitlines()[-1])
        versions.append(version)
        for family, values in found.items():
            for key, value in values.items():
                ranges = defaults[family].setdefault(key, [])
                if ranges and ranges[-1][0] == value and ranges[-1][2] == number - 1:
                    ranges[-1][2] = number
                else:
                    ranges.append([value, number, number])
    lines = [f'"versions": {json.dumps(versions)}']
    lines += [f'"{name}": {json.dumps(keys, sort_keys=True)}' for name, keys in defaults.items()]
    path = pathlib.Path(__file__).parent / "config_defaults.json"
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    print_defaults(sys.argv[2]) if sys.argv[1] == "--one" else main()
