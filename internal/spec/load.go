// Package spec turns a stack's configuration into a [Plan]: load strictly, default, validate, plan. It needs neither
// Pulumi nor a network, so the plan is complete and every problem known before the first resource is registered.
package spec

import "talos-proxmox/internal/problem"

// Options are the options of [Load].
type Options struct {
	// Stack is the name of the Pulumi stack, from which MAC addresses are derived.
	Stack string
	// CheckRecipient checks a public key of backups; optional. Its errors do not quote the key.
	CheckRecipient func(key string) error
	// CheckIdentities checks secret age keys, CheckSSHKey a private key; optional. Their errors do not quote them.
	CheckIdentities, CheckSSHKey func(text string) error
	// Encrypted are the top-level keys with encrypted values, with their JSON in the stack's file, where encrypted values
	// are {"secure": …}; an empty text = the file is not available. Problems and warnings show no encrypted value.
	Encrypted map[string]string
	// Blinded reports whether encrypted values are not decrypted: [Blinded] or the ciphertext takes their place.
	Blinded bool
	// Offline makes connection settings of hosts optional.
	Offline bool
	// CheckRoot returns an error if the stack's credentials do not allow what Proxmox reserves for root@pam,
	// such as passthrough without a mapping; optional.
	CheckRoot func() error
}

// Load decodes the configuration and plans the stack. The values are the top-level keys without their namespace (hosts,
// templates, clusters, machines, protect, vmidRanges, backup) with their JSON; sshPrivateKey is ignored. The error is a
// [problem.List] with every problem.
func Load(values map[string]string, o Options) (*Plan, error) {
	var problems problem.List

	parsed := parseValues(values)
	found := findSecrets(parsed, o)
	harden(parsed)

	p := newPlanner(decode(parsed, found, &problems), o, found, &problems)
	plan := p.plan()

	if len(problems) > 0 {
		return nil, found.redact(problems).Sorted()
	}

	return plan, nil
}
