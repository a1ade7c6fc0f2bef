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

// expiryWarning is how long before the token's expiry the warning begins.
const expiryWarning = 30 * 24 * time.Hour

// Credentials checks the credentials for Proxmox: it finds those that Proxmox refuses or that expire soon, and nothing
// if Proxmox does not answer.
func Credentials(ctx context.Context, proxmox *proxmoxapi.Machines) problem.List {
	r := &reader{
		Sources: Sources{Proxmox: proxmox}, site: &Site{Identity: proxmox.Identity(), ReadAt: time.Now()},
	}
	if r.readRights(ctx) {
		r.readToken(ctx)
	}

	c := &checker{site: r.site}
	if c.site.LoginError != nil {
		c.reportLoginError()
	}

	c.checkToken()

	return c.found
}

// readToken reads when the token expires. Proxmox shows a token its own user only with Sys.Audit or User.Modify on a
// group of the user, like any other user (source: pve-access-control, API2/User.pm, and RPCEnvironment.pm, where a
// token is not its user itself).
func (r *reader) readToken(ctx context.Context) {
	user, token, separated := strings.Cut(r.site.Identity, "!")
	if !separated || !r.site.Rights.Has("/access/groups/"+permissions.OwnGroup, "Sys.Audit", "User.Modify") {
		return
	}

	type expiring struct {
		Expire json.Number `json:"expire"` // seconds; 0 = never
	}

	get(ctx, r, "when "+r.site.Identity+" ends", "/access/users/"+url.PathEscape(user), func(s *Site, answer struct {
		expiring

		Tokens map[string]expiring `json:"tokens"`
	},
	) {
		for _, end := range []expiring{answer.expiring, answer.Tokens[token]} {
			seconds, _ := end.Expire.Int64() // 0 with an error

			if at := time.Unix(seconds, 0); seconds > 0 && (s.TokenExpiry.IsZero() || at.Before(s.TokenExpiry)) {
				s.TokenExpiry = at
			}
		}
	})
}

// checkToken warns before the token expires.
func (c *checker) checkToken() {
	end := c.site.TokenExpiry
	if left := end.Sub(c.site.ReadAt); end.IsZero() || left > expiryWarning {
		return
	}

	c.warn("", c.credentialsKey(), nil, "%s expires on %s, and Proxmox refuses it from then on: create another one, or extend it; "+
		"docs/permissions.md#the-end-of-the-token", c.site.Identity, end.UTC().Format(time.DateOnly))
}
