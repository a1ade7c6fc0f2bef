package proposal

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"talos-proxmox/internal/spec"
)

// HostKey is a host's SSH key, as the host itself sends it.
type HostKey struct {
	Line        string // in the format of authorized_keys
	Fingerprint string // SHA256:…
	// Accepted: somebody has compared it with the host's own console.
	Accepted bool
	// Problem is why it could not be fetched; empty = it was.
	Problem string
}

// Compare is the command that prints the fingerprint of a host's key on the host's own console.
const Compare = "ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub"

const (
	sshPort    = "22"
	sshTimeout = 10 * time.Second
)

// errFetched ends a connection once the key is known.
var errFetched = errors.New("the key is known")

// FetchKey fetches the SSH key of a host. It does not log in.
func FetchKey(address netip.Addr) (key HostKey, err error) {
	_, err = ssh.Dial("tcp", net.JoinHostPort(address.String(), sshPort), &ssh.ClientConfig{
		User: "root", Timeout: sshTimeout, HostKeyAlgorithms: []string{ssh.KeyAlgoED25519},
		HostKeyCallback: func(_ string, _ net.Addr, public ssh.PublicKey) error {
			key.Line = strings.TrimSpace(string(ssh.MarshalAuthorizedKey(public)))
			key.Fingerprint = ssh.FingerprintSHA256(public)

			return errFetched
		},
	})

	if key.Line != "" {
		return key, nil
	}

	return key, fmt.Errorf("unable to fetch the SSH key of %s: %w", address, err)
}

// chooseKeys fetches the SSH keys of the hosts in whose shells the program works, and accepts those that somebody has
// compared.
func (p *planner) chooseKeys() {
	var fetched []string

	for i := range p.stack.Hosts {
		h := &p.stack.Hosts[i]

		if h.NeedsSSH = p.stack.Source == spec.SourceImage || len(h.GPUs) > 0; !h.NeedsSSH || !h.Address.IsValid() {
			continue
		}

		key, err := p.FetchKey(h.Address)
		if err != nil {
			h.Key.Problem = err.Error()

			continue
		}

		fetched = append(fetched, h.Name+" has "+key.Fingerprint)
		key.Accepted = slices.Contains(p.AcceptedKeys, key.Fingerprint)

		if !key.Accepted && p.Confirm != nil {
			if key.Accepted, p.err = p.Confirm(h.Name, key); p.err != nil {
				return
			}
		}

		h.Key = key
	}

	for _, wanted := range p.AcceptedKeys {
		if !slices.ContainsFunc(p.stack.Hosts, func(h StackHost) bool { return h.Key.Fingerprint == wanted }) {
			p.problems.Add("--accept-host-key", wanted, "is not the key of a host whose shell is needed (%s); compare it with what "+
				"`%s` prints on the host's own console", cmp.Or(strings.Join(fetched, ", "), none), Compare)
		}
	}
}
