package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"talos-proxmox/internal/recovery"
	"talos-proxmox/internal/talos"
	"talos-proxmox/stacks"
)

// Check asks the lab what previews of a stack ask, and returns a report for a terminal. It takes no lock and changes
// nothing.
func Check(ctx context.Context, o Options, target *Target) (string, error) {
	e := &Engine{o: o}

	// A file that cannot be planned has no plan in the target.
	if _, err := stacks.PlanUnconnected(o.Stack, target.File); err != nil {
		return "", fmt.Errorf("the configuration of stack %q has problems:\n%w", o.Stack, err)
	}

	transport, err := e.transport()
	if err != nil {
		return "", err
	}

	setting := func(key string) string {
		if secret := target.Config.Secrets["proxmoxve:"+key]; secret != "" {
			return secret
		}

		return target.Config.Values["proxmoxve:"+key]
	}
	check := stacks.Check{
		Stack: o.Stack, Plan: target.Plan, Setting: setting, Transport: transport,
		Factory: talos.Factory{URL: target.Config.Values["talos:imageFactoryUrl"]},
	}

	if _, err := os.Stat(e.statePath()); !errors.Is(err, fs.ErrNotExist) {
		pulumi := recovery.CLI(o.CLI.Path, filepath.Join(o.Dir, workFolder),
			"PULUMI_BACKEND_URL=file://"+filepath.Join(o.Dir, stateFolder),
			"PULUMI_CONFIG_PASSPHRASE_FILE="+filepath.Join(o.Dir, passphraseFile),
			"PULUMI_HOME="+filepath.Join(o.Dir, homeFolder))

		_, deployment, err := recovery.ReadState(ctx, pulumi, o.Stack)
		if err != nil {
			return "", err
		}

		check.Resources = deployment.Resources
	}

	return check.Report(ctx)
}
