package proxmoxve

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"

	p "github.com/pulumi/pulumi-go-provider"
)

const typeToken = "proxmoxve:User/token:Token" //nolint:gosec // the type's name

// tokenType is the resource of API tokens. Proxmox tells a token's value once: a change of anything but the name loses
// it from the state, as published.
func tokenType() *resourceType {
	return &resourceType{
		token: typeToken, attributes: token(), framework: true,
		moreChanges: func(_, _ object, found map[string]p.DiffKind) {
			if len(found) > 0 {
				found["value"] = p.Update
			}
		},
		recomputes: func(object, object) []string { return []string{"value"} },
		create:     createToken, read: readToken, update: updateToken, remove: removeToken,
	}
}

func token() attributes {
	return attributes{
		"comment":              {exact: true, effect: inPlace},
		"privilegesSeparation": {kind: boolean, fallback: true, effect: inPlace},
		"tokenName":            {required: true, effect: replace, validate: tokenName},
		"userId":               {required: true, effect: replace},
		"value":                {output: true, secret: true},
	}
}

var tokenNames = regexp.MustCompile(`[A-Za-z][A-Za-z0-9.\-_]+`)

// tokenName looks for a good name anywhere in it, as published; Proxmox looks at all of it.
func tokenName(v any) string {
	if !tokenNames.MatchString(v.(string)) {
		return fmt.Sprintf("Attribute token_name must be a valid token identifier, got: %s", v)
	}

	return ""
}

func tokenAt(values object) string {
	return userAt(str(values, "userId")) + "/token/" + url.PathEscape(str(values, "tokenName"))
}

// tokenRequest are the parameters that creation and change have in common. A comment that is not set any more stays,
// as published.
func tokenRequest(plan object) form {
	f := form{"privsep": bit(flag(plan, "privilegesSeparation"))}
	if comment, stated := plan["comment"].(string); stated {
		f["comment"] = comment
	}

	return f
}

func createToken(ctx context.Context, a *api, plan object) (string, object, error) {
	var made struct {
		ID    string `json:"full-tokenid"`
		Value string `json:"value"`
	}

	if err := a.call(ctx, http.MethodPost, tokenAt(plan), tokenRequest(plan), &made); err != nil {
		//nolint:revive,staticcheck // published words
		return "", nil, fmt.Errorf("Error creating user token: error creating user token: %w", err)
	}

	plan["value"] = made.ID + "=" + made.Value

	return str(plan, "userId") + "!" + str(plan, "tokenName"), plan, nil
}

// readToken fails where the token is gone, as published: nothing that Proxmox says means that to it.
func readToken(ctx context.Context, a *api, _ string, before object) (object, error) {
	state := maps.Clone(before)

	var found struct {
		Comment *string `json:"comment"`
		Privsep int     `json:"privsep"`
	}

	if err := a.call(ctx, http.MethodGet, tokenAt(state), nil, &found); err != nil {
		//nolint:revive,staticcheck // published words
		return nil, fmt.Errorf("Error reading user token: error retrieving user token: %w", err)
	}

	delete(state, "comment")

	if found.Comment != nil {
		state["comment"] = *found.Comment
	}

	state["privilegesSeparation"] = found.Privsep == 1

	return state, nil
}

func updateToken(ctx context.Context, a *api, _ string, plan, _ object) (object, error) {
	if err := a.call(ctx, http.MethodPut, tokenAt(plan), tokenRequest(plan), nil); err != nil {
		//nolint:revive,staticcheck // published words
		return nil, fmt.Errorf("Error creating user token: error updating user token: %w", err)
	}

	delete(plan, "value")

	return plan, nil
}

func removeToken(ctx context.Context, a *api, _ string, state object) error {
	if err := a.call(ctx, http.MethodDelete, tokenAt(state), nil, nil); err != nil {
		//nolint:revive,staticcheck // published words
		return fmt.Errorf("Error deleting user token: error deleting user token: %w", err)
	}

	return nil
}
