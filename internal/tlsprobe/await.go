package tlsprobe

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"
)

const (
	retryInterval    = 250 * time.Millisecond
	progressInterval = 15 * time.Second
)

// Maintenance is the environment variable with machines that may answer in maintenance mode, each with the fingerprint
// that its console shows, comma-separated: one-general-2=rMWhs9V9Y30sbs9W5KNCgVRReKGrfvV0FwMtqEX4OW8=.
const Maintenance = "TALOS_PROXMOX_MAINTENANCE"

// AnnouncedFingerprint returns the fingerprint of a machine in the value of [Maintenance]; empty = the machine is not
// in it.
func AnnouncedFingerprint(value, machine string) string {
	for entry := range strings.SplitSeq(value, ",") {
		if name, fingerprint, _ := strings.Cut(strings.TrimSpace(entry), "="); name == machine {
			return cmp.Or(fingerprint, "not stated")
		}
	}

	return ""
}

// Machine is a machine with what users need to know to find out why it does not answer. Requests contain it.
type Machine struct {
	Name    string     `json:"name"`
	Host    string     `json:"host"` // the Proxmox host
	VMID    int        `json:"vmid"`
	Address netip.Addr `json:"address"`
	MAC     string     `json:"mac"`  // of its first card
	MACs    []string   `json:"macs"` // of all its cards
	DHCP    bool       `json:"dhcp,omitempty"`
	Bridge  string     `json:"bridge"`
	VLAN    int        `json:"vlan,omitempty"` // 0 = none
	Gateway netip.Addr `json:"gateway,omitzero"`
}

// Await probes a machine until it is ready, reports progress if that takes a while, and returns the answer. It returns
// an error with advice after the timeout, and immediately if the answer is unproven.
func Await(
	ctx context.Context, m Machine, timeout time.Duration, probe func(context.Context) Answer, progress func(line string),
) (Answer, error) {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()

	start := time.Now()
	next := progressInterval
	last := Answer{Text: "not probed yet"}

	for {
		answer := probe(limited)
		if answer.Ready {
			return answer, nil
		}

		if answer.Unproven {
			return answer, m.UnprovenError(answer)
		}

		// A probe that the timeout cut off says nothing.
		if limited.Err() == nil {
			last = answer
		}

		if waited := time.Since(start); waited >= next && limited.Err() == nil {
			progress(fmt.Sprintf("waiting for %s to answer, %s so far; last: %s; its console in Proxmox shows what it does",
				m, waited.Truncate(time.Second), last.Text))

			next += progressInterval
		}

		select {
		case <-time.After(retryInterval):
		case <-limited.Done():
			if ctx.Err() != nil {
				return last, fmt.Errorf("interrupted while waiting for %s to answer (last: %s): pulumi up resumes here", m, last.Text)
			}

			return last, fmt.Errorf("%s did not answer within %s (last: %s)\n%s", m, timeout, last.Text, m.remedy())
		}
	}
}

// UnprovenError says that the answer of a machine is not proof that it is this one, and how to tell.
func (m Machine) UnprovenError(answer Answer) error {
	return fmt.Errorf("%s does not prove that it is this machine, and nothing is sent to it: %s\n%s", m, answer.Text,
		m.identification(answer))
}

func (m Machine) String() string {
	return fmt.Sprintf("%s (VM %d on %s) on %s", m.Name, m.VMID, m.Host, netip.AddrPortFrom(m.Address, talosPort))
}

// identification describes how to tell the machine from another one with its address.
func (m Machine) identification(answer Answer) string {
	return strings.Join([]string{
		fmt.Sprintf("look at the console of VM %d in Proxmox:", m.VMID),
		"  it runs as a node, or is off: another machine answers on its address; find out which (the MAC that the router or `ip " +
			"neigh` has for it), and take it off the network",
		"  it is in maintenance mode (it was reset): recreate it with `pulumi up --replace '**::" + m.Name + "-vm'`, or, if its " +
			"console shows exactly this fingerprint after \"server certificate issued\",",
		fmt.Sprintf("  %s='%s=%s' pulumi up --replace '**::%[2]s-configuration'", Maintenance, m.Name, answer.Fingerprint),
	}, "\n")
}

// remedy describes what to check, by what the console shows.
func (m Machine) remedy() string {
	network := "bridge " + m.Bridge
	if m.VLAN != 0 {
		network += fmt.Sprintf(", VLAN %d", m.VLAN)
	}

	if m.Gateway.IsValid() && !m.DHCP {
		network += fmt.Sprintf(", gateway %s", m.Gateway)
	}

	address := fmt.Sprintf("that no other machine has %s", m.Address)
	if m.DHCP {
		address = fmt.Sprintf("that the router reserves %s for %s", m.Address, m.MAC)
	}

	return strings.Join([]string{
		fmt.Sprintf("look at the console of VM %d in Proxmox:", m.VMID),
		"  it is off, or boots nothing: start it; its image and boot order come from its template",
		fmt.Sprintf("  it shows no address, or another one: check %s, and %s", network, address),
		fmt.Sprintf("  it shows this address: check routes and firewalls between here and port %d", talosPort),
		"then run pulumi up again: it resumes with this machine",
	}, "\n")
}
