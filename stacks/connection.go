package stacks

import (
	"net/url"
	"regexp"
	"strings"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/proxmoxapi"
)

// CheckConnection checks the address of the Proxmox API and the form of the credentials; it shows no secret.
func CheckConnection(get proxmoxapi.Setting) problem.List {
	return append(checkEndpoint(get), checkCredentials(get)...)
}

// checkEndpoint checks the address of the Proxmox API.
func checkEndpoint(get proxmoxapi.Setting) problem.List {
	const example = "such as https://10.0.0.2:8006/"

	endpoint := get("endpoint")

	address, err := url.ParseRequestURI(endpoint)
	switch {
	case endpoint == "":
		return problem.List{problem.New(
			"proxmoxve:endpoint", nil, "is missing; set a Proxmox host's API, %s, or set PROXMOX_VE_ENDPOINT", example,
		)}
	case err != nil || address.Scheme != "https" || address.Host == "":
		return problem.List{problem.New(
			"proxmoxve:endpoint", nil, "is not the address of a Proxmox API; write it with https:// and the port, %s", example,
		)}
	default:
		return nil
	}
}

// tokenForm is that of the published provider, which silently ignores a token of another form.
var tokenForm = regexp.MustCompile(`^\S+@\S+!\S+=[a-zA-Z0-9-]+$`)

// checkCredentials checks whether the provider can log in; it never shows a value.
func checkCredentials(get proxmoxapi.Setting) problem.List {
	token, user := get("apiToken"), get("username")
	refuse := func(key, message string) problem.List {
		return problem.List{{Path: "proxmoxve:" + key, Message: message}}
	}

	switch {
	case strings.HasPrefix(token, "PVEAPIToken="):
		return refuse("apiToken", "begins with a word of the HTTP header; remove PVEAPIToken=, so that it is user@realm!name=secret")
	case token != "" && !tokenForm.MatchString(token):
		return refuse("apiToken", "is not an API token; write it in full, as user@realm!name=secret")
	case token != "" || get("authTicket") != "" && get("csrfPreventionToken") != "":
		return nil
	case user == "":
		return refuse("apiToken", "is missing; set it with pulumi config set --secret proxmoxve:apiToken 'user@realm!name=secret', or set PROXMOX_VE_API_TOKEN")
	case !strings.Contains(user, "@"):
		return refuse("username", "has no realm; write it as root@pam or user@pve")
	case get("password") == "":
		return refuse("password", "is missing beside proxmoxve:username; set it with pulumi config set --secret proxmoxve:password, or set PROXMOX_VE_PASSWORD")
	default:
		return nil
	}
}
