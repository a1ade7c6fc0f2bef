package operations

import (
	"reflect"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/common/apitype"

	"talos-proxmox/internal/recovery"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/talos"
	"talos-proxmox/internal/tokens"
)

// addLeave adds the request with which a node leaves its cluster when it is removed, if the resource is such a command.
func (l lastState) addLeave(r apitype.ResourceV3) {
	text, _ := recovery.Reveal(r.Inputs)["stdin"].(string)
	if strings.HasSuffix(r.URN.Name(), tokens.OfLeave) && r.Parent.Type() == tokens.TalosCluster {
		secrets := l.secretsOf(r.Parent.Name())
		if secrets.leaves == nil {
			secrets.leaves = map[string]string{}
		}

		secrets.leaves[string(r.URN)] = text
	}
}

// renewedLeaves returns the leave requests, by URN, with the current authority of the Talos API: they run without the
// program, perhaps before an `up` has renewed them. During a rotation they keep the one that machines know.
func (s clusterSecrets) renewedLeaves() (map[string]string, error) {
	renewed := map[string]string{}

	authority, replaced := s.authority(talos.TalosAuthority)
	if replaced != nil {
		return renewed, nil
	}

	for urn, text := range s.leaves {
		req, err := request.ParseLeave(text)
		if err != nil {
			return nil, errState // the error may quote secrets
		}

		if reflect.DeepEqual(req.Authority, &authority) && req.Talosconfig == "" {
			continue
		}

		req.Authority, req.Talosconfig = &authority, ""

		after, err := req.Keep()
		if err != nil {
			return nil, errState
		}

		renewed[urn] = after
	}

	return renewed, nil
}

// setLeave writes a leave request into the resource of its command.
func setLeave(r object, text string) error {
	if err := setSecrets(r, "inputs", object{"stdin": text}); err != nil {
		return err
	}

	return setSecrets(r, "outputs", object{"stdin": text})
}
