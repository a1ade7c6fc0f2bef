package operations

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"talos-proxmox/internal/request"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/talos"
)

// RunHolders reports which runs hold the stack's clusters, and for which clusters that is not known, and why. Clusters
// are asked at the same time.
func (d Deployed) RunHolders(ctx context.Context) (live, unknown []string, err error) {
	state, err := d.readState(ctx)
	if err != nil {
		return nil, nil, err
	}

	var (
		wg sync.WaitGroup
		mu sync.Mutex
	)

	for _, c := range d.Plan.Clusters {
		if len(state.secretsOf(c.Name).nodes) == 0 { // it was not created yet
			continue
		}

		talosconfig, err := state.talosconfig(c, talos.Authority.TemporaryAdministrator)
		if err != nil {
			return nil, nil, d.missingError(c, "machine secrets")
		}

		wg.Go(func() {
			holder, err := d.runHolder(ctx, c, talosconfig)

			mu.Lock()
			defer mu.Unlock()

			switch {
			case err != nil:
				unknown = append(unknown, fmt.Sprintf("cluster %s: %v", c.Name, err))
			case holder != "":
				live = append(live, fmt.Sprintf("cluster %s: %s", c.Name, holder))
			}
		})
	}

	wg.Wait()

	return live, unknown, nil
}

func (d Deployed) runHolder(ctx context.Context, c spec.Cluster, talosconfig string) (string, error) {
	out, err := d.talosops(ctx, "holder", request.Holder{Common: controlPlanes(c, 0), Talosconfig: talosconfig})
	if err != nil {
		return "", err
	}

	var result request.RunHolder
	if err := json.Unmarshal(out, &result); err != nil {
		return "", fmt.Errorf("talosops holder printed an invalid result: %w", err)
	}

	return result.Holder, nil
}
