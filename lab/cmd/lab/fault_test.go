package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestFaultFlagGroups(t *testing.T) {
	t.Parallel()

	for line, want := range map[string]string{
		"":                                  "at least one of the flags in the group [offline ",
		"--host pve1 --message x":           "at least one of the flags in the group [offline ",
		"--offline --host pve1 --full x":    "[full offline] were all set",
		"--no-quorum --task qmclone":        "[no-quorum task] were all set",
		"--task qmclone --path /x":          "[path task] were all set",
		"--full local-lvm --message x":      "[full message] were all set",
		"--no-quorum --host pve1":           "[host no-quorum] were all set",
		"--path /x --reset --vmid 100":      "[path vmid] were all set",
		"--path /x --reset --status 500":    "[reset status] were all set",
		"--start-fails --message x":         "[message start-fails] were all set",
		"--task x --message x --warnings 1": "[message warnings] were all set",
		"--offline":                         "--no-power: set --host",
		"--no-power":                        "--no-power: set --host",
		"--hangs":                           "--no-network: set --vmid",
		"--lock lunch --vmid 100":           `--lock "lunch" is unknown: use one of backup,`,
		"--task clone --message x":          `--task "clone" is unknown: use one of *, download`,
		"--task qmclone":                    "set an effect: --message",
		"--task qmclone --warnings -1":      "--warnings -1: set at least 1",
		"--path ( --reset":                  `--path "(": not a regular expression`,
		"--method FETCH --reset":            `--method "FETCH" is unknown: use one of GET, POST, PUT, DELETE`,
		"--path /x --status 200":            "--status 200: use one from 400 to 599",
		"--path /x --delay 1s --after":      "--after: requires --reset",
		"--path /x --delay -1s":             "--delay -1s: set a positive duration",
		"--path /x --reset --times -1":      "--times -1: set a positive number",
	} {
		cmd := newFaultAdd(&globalFlags{dir: t.TempDir()})
		cmd.SetArgs(strings.Fields(line))
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		assert.ErrorContains(t, cmd.Execute(), want, line)
	}

	for _, line := range []string{
		"--offline --host pve2", "--no-power --host pve2", "--lock backup --vmid 1", "--start-fails --vmid 1 --times 1", "--task qmclone --delay 5m --host pve1",
		"--method POST --path /clone$ --reset --after", "--path /x --message busy --status 500 --delay 1s",
	} {
		cmd := newFaultAdd(&globalFlags{dir: t.TempDir()})
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		assert.NoError(t, cmd.ParseFlags(strings.Fields(line)), line)
		assert.NoError(t, cmd.ValidateFlagGroups(), line)
	}
}
