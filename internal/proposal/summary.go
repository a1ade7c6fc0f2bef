package proposal

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
)

// Describe returns what a cluster has, for a terminal.
func (i *Inventory) Describe() string {
	var text strings.Builder

	release := "Proxmox"
	if i.Release != "" {
		release = "Proxmox VE " + i.Release
	}

	fmt.Fprintf(&text, "%s at %s\n", release, i.Endpoint)

	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)

	for _, h := range i.Hosts {
		if !h.Online {
			fmt.Fprintf(table, "  %s\toffline\n", h.Name)

			continue
		}

		address := "address unknown"
		if h.Address.IsValid() {
			address = h.Address.String()
		}

		fmt.Fprintf(table, "  %s\t%s\t%s\n", h.Name, address, h.title())

		for _, gpu := range h.GPUs {
			fmt.Fprintf(table, "  \t\tNVIDIA %s at %s: %s\n", gpu.title(), gpu.PCI,
				cmp.Or(gpu.User, gpu.Generation, "architecture unknown"))
		}
	}

	_ = table.Flush()

	for n, gap := range i.Gaps {
		if n == 0 {
			fmt.Fprintln(&text, "Not read, because of the credentials' privileges (the role PVEAuditor on / has all of them):")
		}

		fmt.Fprintf(&text, "  %s\n", gap)
	}

	return text.String()
}

// Summary returns what was decided and why.
func (s *Stack) Summary() string {
	var text strings.Builder

	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)

	for _, r := range s.Reasons {
		fmt.Fprintf(table, "  %s\t%s\t%s\n", r.Subject, r.Value, r.Why)
	}

	fmt.Fprintf(table, "  addresses\t%s-%s\tassumed: no DHCP server gives them out\n",
		s.Network.First, s.Network.Last)

	_ = table.Flush()

	return text.String()
}

// Surroundings are what the next steps depend on beside the stack.
type Surroundings struct {
	// CAFile is the value of SSL_CERT_FILE; empty = the system trusts the certificate of the Proxmox API.
	CAFile string
	// Insecure: any certificate was accepted.
	Insecure bool
	// Lab: the Proxmox is the embedded lab, which trusts itself and has its own credentials.
	Lab bool
}

// NextSteps returns the commands that bring the stack up, in order, each with what it is for.
func (s *Stack) NextSteps(around Surroundings) string {
	var text strings.Builder

	number := 0
	step := func(command, why string, arguments ...any) {
		number++
		fmt.Fprintf(&text, "  %d. %s:\n     %s\n", number, fmt.Sprintf(why, arguments...), command)
	}

	if around.Lab {
		if slices.ContainsFunc(s.Hosts, func(h StackHost) bool { return len(h.GPUs) > 0 }) {
			step(".bin/lab stop && .bin/lab start", "restart the lab, which takes the names of GPUs from stack files")
		}

		step(".bin/lab preview --stack "+s.Name, "see what would be created")
		step(".bin/lab up --stack "+s.Name, "create it")

		return text.String()
	}

	root := "root@" + s.Hosts[0].Address.String()

	switch {
	case around.Insecure:
		step("scp "+root+":/etc/pve/pve-root-ca.pem . && export SSL_CERT_FILE=$PWD/pve-root-ca.pem",
			"trust the Proxmox cluster's authority instead of PROXMOX_VE_INSECURE, once you have compared its fingerprint (docs/trust.md)")
	case around.CAFile != "":
		step("export SSL_CERT_FILE="+around.CAFile, "in each new shell, trust the Proxmox cluster's authority (docs/trust.md)")
	}

	step("pulumi stack init "+s.Name, "create the stack, with a passphrase for its secrets, which you keep (`pulumi login` is before that)")

	for i, h := range s.Hosts {
		if !h.NeedsSSH || h.Key.Accepted {
			continue
		}

		line := cmp.Or(h.Key.Line, "ssh-ed25519 …")
		step(fmt.Sprintf("pulumi config set --stack %s --path 'talos-proxmox:hosts[%d].ssh.hostKey' '%s'", s.Name, i, line),
			"accept the SSH key of %s, once `%s` prints %s on its own console", h.Name, Compare,
			cmp.Or(h.Key.Fingerprint, "the same fingerprint"))
	}

	permissions := "talos-proxmox permissions " + s.Name
	if strings.HasPrefix(s.Release, "8.") {
		permissions += " --proxmox 8"
	}

	step(permissions, "read the commands that make this stack's roles and its token, and run them as root on a host")
	step("pulumi config set --stack "+s.Name+" --secret proxmoxve:apiToken", "store that token (pulumi@pve!talos=<value>), for which Pulumi asks")

	if slices.ContainsFunc(s.Hosts, func(h StackHost) bool { return h.NeedsSSH }) {
		step("pulumi config set --stack "+s.Name+" --secret talos-proxmox:sshPrivateKey < ~/.ssh/id_ed25519",
			"store the SSH key for root on the hosts, unless your SSH agent has it")
	}

	step("talos-proxmox check "+s.Name, "compare the stack with Proxmox and the hosts")
	step("talos-proxmox preview "+s.Name, "see what would be created")
	step("pulumi up --stack "+s.Name+" --parallel 64", "create it; `up` asks before it begins")

	return text.String()
}
