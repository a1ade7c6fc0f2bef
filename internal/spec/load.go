// Package spec turns a stack's configuration into a [Plan]: load strictly, default, validate, plan. It does so without
// Pulumi and without a network, so that what will exist is decided, and every problem known, before the first resource
// is registered.
package spec

import "talos-proxmox/internal/problem"

// Options is what [Load] needs beside the configuration.
type Options struct {
	// Stack is the name of the Pulumi stack; MAC addresses follow from it.
	Stack string
	// CheckRecipient judges a public key that backups are encrypted to; optional. Its error does not repeat the key.
	CheckRecipient func(key string) error
	// CheckIdentities judges secret keys of age, CheckSSHKey a private key; optional. Their errors repeat nothing of them.
	CheckIdentities, CheckSSHKey func(text string) error
	// Encrypted are the keys that hold something encrypted, each with the JSON of what the stack's file has for it,
	// where encrypted values are {"secure": …}; empty = the file is not available. No problem and no warning shows an
	// encrypted value.
	Encrypted map[string]string
	// Blinded says that encrypted values are not known: in their places are [Blinded], or what the stack's file has.
	Blinded bool
	// Unconnected says that no one is asked anything: how hosts are reached can be omitted.
	Unconnected bool
	// CheckRaw says whether the stack's credentials let it pass devices through without a mapping; optional. Its error
	// says what to do instead.
	CheckRaw func() error
}

// Load reads the configuration and plans the stack. The values are the top-level keys without their namespace (hosts,
// templates, clusters, machines, protect, vmidRanges,
// backup) with JSON text; sshPrivateKey is left alone. The error is
// [problem.List] with everything that is wrong.
func Load(values map[string]string, o Options) (*Plan, error) {
	var problems problem.List

	parsed := parseAll(values)
	found := findSecrets(parsed, o)
	p := newPlanner(decode(parsed, found, &problems), o, found, &problems)
	plan := p.plan()

	if len(problems) > 0 {
		return nil, found.redact(problems).Sorted()
	}

	return plan, nil
}
