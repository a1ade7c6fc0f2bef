package preflight

import (
	"context"
	"encoding/json"
	"net/url"
	"strings"
	"time"

	"talos-proxmox/internal/permissions"
	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/proxmoxapi"
)

// tokenSoon is how long before a token's end a warning begins.
const tokenSoon = 30 * 24 * time.Hour

// Credentials returns what is wrong with those for Proxmox: that it refuses them, or that they end soon. Where it does
// not answer, nothing is known to be.
func Credentials(ctx context.Context, proxmox *proxmoxapi.Machines) problem.List {
	a := &asker{
		Questions: Questions{Proxmox: proxmox}, site: &Site{Identity: proxmox.Identity(), Asked: time.Now()},
	}
	if a.askRights(ctx) {
		a.askToken(ctx)
	}

	j := &judge{site: a.site}
	if j.site.Refused != nil {
		j.refused()
	}

	j.token()

	return j.found
}

// askToken asks when the token ends. Proxmox shows a token its own user to whom it would show any: with Sys.Audit or
// User.Modify on a group that the user is in (source: pve-access-control, API2/User.pm, and RPCEnvironment.pm, where a
// token is not its user itself).
func (a *asker) askToken(ctx context.Context) {
	user, token, separated := strings.Cut(a.site.Identity, "!")
	if !separated || !a.site.Rights.Has("/access/groups/"+permissions.OwnGroup, "Sys.Audit", "User.Modify") {
		return
	}

	type ends struct {
		Expire json.Number `json:"expire"` // seconds; 0 = never
	}

	ask(ctx, a, "when "+a.site.Identity+" ends", "/access/users/"+url.PathEscape(user), func(s *Site, answer struct {
		ends

		Tokens map[string]ends `json:"tokens"`
	},
	) {
		for _, end := range []ends{answer.ends, answer.Tokens[token]} {
			seconds, _ := end.Expire.Int64() // 0 with an error

			if at := time.Unix(seconds, 0); seconds > 0 && (s.TokenEnds.IsZero() || at.Before(s.TokenEnds)) {
				s.TokenEnds = at
			}
		}
	})
}

// token warns before the token ends.
func (j *judge) token() {
	end := j.site.TokenEnds
	if left := end.Sub(j.site.Asked); end.IsZero() || left > tokenSoon {
		return
	}

	j.warn("", j.key(), nil, "%s expires on %s, and Proxmox refuses it from then on: create another one, or extend it; "+
		"docs/permissions.md#the-end-of-the-token", j.site.Identity, end.UTC().Format(time.DateOnly))
}
