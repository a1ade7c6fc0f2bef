package proxmoxapi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"talos-proxmox/internal/ownership"
)

// Verified is what Proxmox has at the VMIDs of a stack's machines.
type Verified struct {
	// Own are the stack's machines, by VMID; what no longer exists is in neither list.
	Own map[int]Machine
	// Foreign are those whose VMID another machine has, sorted by VMID.
	Foreign []Foreign
	// Unread says why a machine could not be compared, by VMID.
	Unread map[int]error
}

// Foreign is a machine of the stack whose VMID another machine has.
type Foreign struct {
	ownership.Machine

	Found  ownership.Found
	Reason string
}

// Explain describes the other machine, and what to do in this stack.
func (f *Foreign) Explain(stack string) string { return f.Foreign(f.Found, f.Reason, stack) }

// Verify compares a stack's machines with what Proxmox has at their VMIDs, in parallel. The credentials may not see a
// machine that is not listed, and cannot change it either.
func (g *Machines) Verify(ctx context.Context, machines []ownership.Machine, stack ownership.Owner) Verified {
	v := Verified{Own: map[int]Machine{}, Unread: map[int]error{}}
	if len(machines) == 0 {
		return v
	}

	listed, err := g.List(ctx)
	if err != nil {
		for _, known := range machines {
			v.Unread[known.VMID] = err
		}

		return v
	}

	var (
		wg sync.WaitGroup
		mu sync.Mutex
	)

	for _, known := range machines {
		at := slices.IndexFunc(listed, func(l Listed) bool { return l.VMID == known.VMID })
		if at < 0 {
			continue
		}

		wg.Go(func() {
			machine, err := g.verify(ctx, listed[at], known, stack)

			mu.Lock()
			defer mu.Unlock()

			var foreign *Foreign

			switch {
			case err == nil:
				v.Own[known.VMID] = machine
			case errors.As(err, &foreign):
				v.Foreign = append(v.Foreign, *foreign)
			case !errors.Is(err, ErrNotFound):
				v.Unread[known.VMID] = err
			}
		})
	}

	wg.Wait()
	slices.SortFunc(v.Foreign, func(a, b Foreign) int { return a.VMID - b.VMID })

	return v
}

// Error implements error.
func (f *Foreign) Error() string {
	return fmt.Sprintf("VM %d is not %s: %s", f.VMID, f.Name, f.Reason)
}

// FindOwn returns a machine of the stack like [Machines.Find]. The error is a *[Foreign] if another machine has its
// VMID.
func (g *Machines) FindOwn(
	ctx context.Context, host string, known ownership.Machine, stack ownership.Owner,
) (Machine, error) {
	machine, err := g.Find(ctx, host, known.VMID)
	if err != nil {
		return machine, err
	}

	if reason := known.ForeignReason(machine.Identity(), stack); reason != "" {
		return machine, &Foreign{known, machine.Identity(), reason}
	}

	return machine, nil
}

func (g *Machines) verify(
	ctx context.Context, listed Listed, known ownership.Machine, stack ownership.Owner,
) (Machine, error) {
	if listed.Type == "lxc" {
		return Machine{}, &Foreign{known, ownership.Found{Name: listed.Name, Host: listed.Host}, "it is a container"}
	}

	return g.FindOwn(ctx, listed.Host, known, stack)
}

// Identity returns what tells the machine from others.
func (m Machine) Identity() ownership.Found {
	found := ownership.Found{
		Name: string(m.Config["name"]), Host: m.Host, Description: string(m.Config["description"]),
		Template: m.Number("template") == 1, CreationID: m.CreationID(), Generation: m.Generation(),
	}

	for key, card := range m.Config {
		if strings.HasPrefix(key, "net") {
			found.Cards = append(found.Cards, string(card))
		}
	}

	return found
}
