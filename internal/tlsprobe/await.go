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
	// pause is between two looks.
	pause = 250 * time.Millisecond
	// reminder is between two lines about a machine that does not answer yet.
	reminder = 15 * time.Second
)

// Maintenance is the variable that names machines which may answer in maintenance mode, each with the fingerprint that
// its console shows, separated by commas: one-general-2=rMWhs9V9Y30sbs9W5KNCgVRReKGrfvV0FwMtqEX4OW8=.
const Maintenance = "TALOS_PROXMOX_MAINTENANCE"

// Announced is the fingerprint that the value of [Maintenance] says of a machine; empty = it says none.
func Announced(value, machine string) string {
	for entry := range strings.SplitSeq(value, ",") {
		if name, fingerprint, _ := strings.Cut(strings.TrimSpace(entry), "="); name == machine {
			return cmp.Or(fingerprint, "not stated")
		}
	}

	return ""
}

// Machine is what someone has to know who looks why a machine does not answer.
type Machine struct {
	Name, Host string // Host is the Proxmox host
	VMID       int
	Address    netip.Addr
	MAC        string   // of its first card
	MACs       []string // of all its cards
	DHCP       bool
	Bridge     string
	VLAN       int // 0 = none
	Gateway    netip.Addr
}

// Await looks at a machine again and again until it is ready. It is quiet while all is well, says what it waits for
// when that takes a while, and ends within the time with an error that names what to look at; at once where somebody
// answers of whom nothing says that it is the machine.
func Await(
	ctx context.Context, m Machine, within time.Duration, look func(context.Context) Answer, say func(line string),
) error {
	limited, cancel := context.WithTimeout(ctx, within)
	defer cancel()

	begin := time.Now()
	next := reminder
	last := Answer{Text: "not asked yet"}

	for {
		answer := look(limited)
		if answer.Ready {
			return nil
		}

		if answer.Unproven {
			return fmt.Errorf(
				"%s does not prove that it is this machine, and nothing is sent to it: %s\n%s", m, answer.Text,
				m.identification(answer),
			)
		}
		// A look that the limit cut off says nothing.
		if limited.Err() == nil {
			last = answer
		}

		if waited := time.Since(begin); waited >= next && limited.Err() == nil {
			say(fmt.Sprintf("waiting for %s to answer, %s so far; last: %s; its console in Proxmox shows what it does",
				m, waited.Truncate(time.Second), last.Text))

			next += reminder
		}

		select {
		case <-time.After(pause):
		case <-limited.Done():
			if ctx.Err() != nil {
				return fmt.Errorf("interrupted while waiting for %s to answer (last: %s): pulumi up resumes here", m, last.Text)
			}

			return fmt.Errorf("%s did not answer within %s (last: %s)\n%s", m, within, last.Text, m.remedy())
		}
	}
}

func (m Machine) String() string {
	return fmt.Sprintf("%s (VM %d on %s) on %s", m.Name, m.VMID, m.Host, netip.AddrPortFrom(m.Address, talosPort))
}

// identification says how to tell the machine from somebody else who has its address.
func (m Machine) identification(answer Answer) string {
	return strings.Join([]string{
		fmt.Sprintf("look at the console of VM %d in Proxmox:", m.VMID),
		"  it runs as a node, or is off: somebody else answers on its address; find out who (the MAC that the router or `ip " +
			"neigh` has for it), and take it off the network",
		"  it is in maintenance mode (it was reset): make it again with `pulumi up --replace '**::" + m.Name + "-vm'`, or, where " +
			"its console says this very fingerprint after \"server certificate issued\",",
		fmt.Sprintf("  %s='%s=%s' pulumi up --replace '**::%[2]s-configuration'", Maintenance, m.Name, answer.Fingerprint),
	}, "\n")
}

// remedy says where to look, in the order of what the console shows.
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
