package engine

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optpreview"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"

	"talos-proxmox/policy/rules"
)

// Policy is a policy pack that judges previews and updates; the zero value is none.
type Policy struct {
	// Pack is the path of a built pack, or of a folder with a PulumiPolicy.yaml.
	Pack string
	// Config is the path of the pack's configuration; empty = the defaults.
	Config string
}

// policyBinary is the project's pack as `make tools` builds it. Under this name Pulumi also finds it on PATH for the
// pack's folder if it has no language host for Go.
const policyBinary = "pulumi-analyzer-policy-go"

// FindPolicy returns the project's pack in dir, with the configuration in a file; empty = the defaults.
func FindPolicy(dir, config string) (Policy, error) {
	pack, err := filepath.Abs(filepath.Join(dir, policyBinary))
	if err == nil {
		_, err = os.Stat(pack)
	}

	if err != nil {
		return Policy{}, fmt.Errorf(
			"unable to find the policy pack: %w; `make tools` builds it, --policy=false runs without it", err,
		)
	}

	if config == "" {
		return Policy{Pack: pack}, nil
	}

	if config, err = filepath.Abs(config); err != nil {
		return Policy{}, fmt.Errorf("unable to find the configuration of the policies: %w", err)
	}

	return Policy{Pack: pack, Config: config}, rules.CheckConfigFile(config)
}

func (p Policy) preview() []optpreview.Option {
	opts := []optpreview.Option{optpreview.PolicyPacks(p.packs()...)}
	if p.Config != "" {
		opts = append(opts, optpreview.PolicyPackConfigs(p.Config))
	}

	return opts
}

func (p Policy) up() []optup.Option {
	opts := []optup.Option{optup.PolicyPacks(p.packs()...)}
	if p.Config != "" {
		opts = append(opts, optup.PolicyPackConfigs(p.Config))
	}

	return opts
}

func (p Policy) packs() []string {
	if p.Pack == "" {
		return nil
	}

	return []string{p.Pack}
}
