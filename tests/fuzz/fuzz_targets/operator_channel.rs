// SPDX-License-Identifier: Apache-2.0
#![cfg_attr(fuzzing, no_main)]
harvester_fuzz::program!(operator_channel);
