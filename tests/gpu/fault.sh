#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# A kernel writes to an invalid address while clients stream through the whole daemon,
# with the shipped model and a 1B-shaped one, on a GPU. tests/sys/027-device-fault.sh
# describes the expected behaviour. Steps are 1 ms longer, or small models would finish
# before the fault.
FDD_SRC=${FDD_SRC:-$(cd "$(dirname "$0")/../.." && pwd)}
for model in "$FDD_SRC/conf/models/demo" "$FDD_SRC/tests/gpu/shapes/llama-1b"; do
    load=; [ -e "$model/model.safetensors" ] || load='--set model.load_format=dummy'
    FAULT_ROUNDS=3 FAULT_TOKENS=1000 FAULT_ARGS="--set model.path=$model $load --set \
device.backend=cuda --set device.deterministic=yes --set device.step_delay_us=1000" \
        "$FDD_SRC/tests/sys/027-device-fault.sh" || exit 1
done
