package verbs

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"talos-proxmox/internal/ownership"
	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/proxmoxapi"
	"talos-proxmox/internal/request"
)

const verifyHelp = `Verifies that the machines of a stack are the ones that it created, before they are deleted: Proxmox
and the provider know a machine by its VMID, which another machine may have taken:
docs/troubleshooting.md#another-machine-has-the-vmid.

A machine that no longer exists is fine. The verb fails if another machine has a VMID, or if Proxmox does not say; with
TALOS_PROXMOX_FORCE=1, the latter is ignored. It changes nothing.`

// verifyRequest has a secret: the credentials for Proxmox.
type verifyRequest struct{ request.Verify }

func (r *verifyRequest) Problems() (problems problem.List) {
	if r.Owner == "" || r.Stack == "" {
		problems.Add("owner and stack", nil, "are missing: set both")
	}

	for i, m := range r.Machines {
		if m.Name == "" || m.VMID == 0 {
			problems.Add(fmt.Sprintf("machines[%d]", i), nil, "has no name or no vmid: set both")
		}
	}

	for key := range r.Proxmox {
		if !proxmoxapi.IsSetting(key) {
			problems.Add("proxmox."+key, nil, "is no setting of the provider: use endpoint, apiToken and the like")
		}
	}

	return problems.Sorted()
}

func runVerify(cmd *cobra.Command, _ *json.Decoder, req *verifyRequest) (any, error) {
	settings := proxmoxapi.Settings(func(key string) string { return req.Proxmox[key] }, os.Getenv)
	stack := ownership.Owner{Name: req.Owner, ID: req.ID}

	found := proxmoxapi.NewMachines(settings, nil).Verify(cmd.Context(), req.Machines, stack)

	var lines []string
	for _, f := range found.Foreign {
		lines = append(lines, "  "+f.Explain(req.Stack))
	}

	if len(lines) > 0 {
		return nil, fmt.Errorf("machines of the stack are not the ones that it created, no machine was deleted:\n%s",
			strings.Join(lines, "\n"))
	}

	if os.Getenv(request.ForceVariable) != "" {
		return nil, nil //nolint:nilnil // there is no result
	}

	for _, vmid := range slices.Sorted(maps.Keys(found.Unread)) {
		lines = append(lines, fmt.Sprintf("  VM %d: %v", vmid, found.Unread[vmid]))
	}

	if len(lines) > 0 {
		return nil, errors.New("Proxmox does not say whether the stack's machines are the ones that it created, no machine " + //nolint:staticcheck // a name
			"was deleted: repeat when it answers, or delete the machines without the comparison: " + request.ForceVariable +
			"=1 pulumi destroy\n" + strings.Join(lines, "\n"))
	}

	return nil, nil //nolint:nilnil // there is no result
}
