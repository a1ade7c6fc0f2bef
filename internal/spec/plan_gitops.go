package spec

import (
	"cmp"
	"encoding/pem"
	"fmt"
	"net/url"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"talos-proxmox/internal/problem"
)

var (
	intervalFormat = format{
		regexp.MustCompile(`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`), "is not a duration; write it as 1m or 30s",
	}
	branchFormat = format{
		regexp.MustCompile(`^refs/(heads|tags|pull|merge-requests)/[^\s~^:?*\[\\]+$`),
		"is not a branch or tag in full; write it as refs/heads/main or refs/tags/v1.0.0",
	}
	tagOfArtifactFormat = format{
		regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`), "is not the tag of an artifact; write it as latest or v1.0.0",
	}
	fluxFormat = format{
		regexp.MustCompile(`^2\.([7-9]|[1-9][0-9])\.[0-9]+$`), "is not a version of Flux from 2.7 on, in full; write it without v, as 2.9.5",
	}
	chartFormat = format{
		regexp.MustCompile(`^((oci|https|http|file)://\S+|[~./]\S*)$`),
		"is not the location of a chart; write it as oci://host/path, https://host/chart.tgz or a path that begins with /, ./ or ~/",
	}
	digestFormat = format{
		regexp.MustCompile(`^sha256:[0-9a-f]{64}$`), "is not a digest; write sha256: and 64 lower-case digits",
	}
)

// WithDefaults returns a copy with the defaults for a cluster; nil = Flux is not installed.
func (g *GitOps) WithDefaults(cluster string) *GitOps {
	if g == nil {
		return nil
	}

	filled := *g
	setDefaults(reflect.ValueOf(&filled).Elem())
	filled.Version = g.Version // optional in stack files only
	filled.Path = cmp.Or(g.Path, "./clusters/"+cluster)
	filled.PullSecret, filled.Verify = cmp.Or(g.PullSecret, &PullSecret{}), cmp.Or(g.Verify, &Verify{})
	filled.Ref = cmp.Or(g.Ref, map[string]string{"git": "refs/heads/main", "oci": "latest"}[filled.Kind])

	return &filled
}

// Check reports problems of the source and its signatures, below a path.
func (g *GitOps) Check(at string, found *problem.List) {
	p := &planner{problems: found}
	p.checkSource(at, g)
	p.checkVerify(at+".verify", g)
}

// planGitOps plans the source that Flux reconciles; nil = Flux is not installed.
func (p *planner) planGitOps(at, cluster string, c *GitOpsConfig) *GitOps {
	if c == nil {
		return nil
	}

	g := c.WithDefaults(cluster)
	g.Chart, g.ChartVersion, g.Digest = c.Operator.Chart, c.Operator.Version, c.Operator.Digest

	refFormat := branchFormat
	if g.Kind == "oci" {
		refFormat = tagOfArtifactFormat
	}

	p.checkFormat(at+".ref", g.Ref, refFormat)
	p.checkFormat(at+".interval", g.Interval, intervalFormat)
	p.checkFormat(at+".version", g.Version, fluxFormat)
	p.checkFormat(at+".operator.chart", g.Chart, chartFormat)
	p.checkFormat(at+".operator.digest", g.Digest, digestFormat)

	if strings.HasPrefix(g.Chart, "http://") && g.Digest == "" {
		p.addMissing(at+".operator.digest", "is missing, and %s is not encrypted: set it, or use https:// or oci://", g.Chart)
	}

	if clean := path.Clean(g.Path); path.IsAbs(g.Path) || clean == ".." || strings.HasPrefix(clean, "../") {
		p.problems.Add(at+".path", g.Path, "is not a folder of the repository; write it as clusters/%s", cluster)
	} else {
		g.Path = "./" + clean
	}

	for _, secret := range []struct{ key, text string }{
		{"age", g.Age}, {"pullSecret.identity", g.PullSecret.Identity}, {"pullSecret.password", g.PullSecret.Password},
	} {
		p.checkEncrypted(at+"."+secret.key, secret.text)
	}

	if p.options.CheckIdentities != nil && g.Age != "" && !p.isUndecrypted(at+".age") {
		if err := p.options.CheckIdentities(g.Age); err != nil {
			p.problems.Add(at+".age", nil, "%v", err)
		}
	}

	p.checkSource(at, g)
	p.checkVerify(at+".verify", g)

	return g
}

// checkVerify checks the required signatures.
func (p *planner) checkVerify(at string, g *GitOps) {
	prefixes := []string{"-----BEGIN PGP PUBLIC KEY BLOCK-----", "ssh-", "ecdsa-", "sk-"}
	form := "a PGP key in armour, or an SSH key as ssh-ed25519 …"

	if g.Kind == "oci" {
		prefixes, form = []string{"-----BEGIN PUBLIC KEY-----"}, "cosign's public key, as in cosign.pub"
	}

	for i, key := range g.Verify.Keys {
		path := fmt.Sprintf("%s.keys[%d]", at, i)
		if !p.isUndecrypted(path) && !slices.ContainsFunc(prefixes, func(begin string) bool {
			return strings.HasPrefix(strings.TrimSpace(key), begin)
		}) {
			p.problems.Add(path, nil, "is not a public key for kind: %s; write %s", g.Kind, form)
		}
	}

	for key, text := range map[string]string{"issuer": g.Verify.Issuer, "subject": g.Verify.Subject} {
		if _, err := regexp.Compile(text); err != nil {
			p.problems.Add(at+"."+key, text, "is not a regular expression: %v", err)
		}
	}

	switch {
	case (g.Verify.Issuer == "") != (g.Verify.Subject == ""):
		p.problems.Add(at, nil, "has one of issuer and subject; set both: either alone accepts anybody's signature")
	case g.Verify.Issuer != "" && g.Kind != "oci":
		p.problems.Add(at+".issuer", g.Verify.Issuer, "is for kind: oci; set keys")
	case g.Verify.Issuer != "" && len(g.Verify.Keys) > 0:
		p.problems.Add(at, nil, "has keys and an identity; set one of the two: Flux verifies only one")
	}
}

// checkEncrypted reports a secret that is in plain text in the stack's file.
func (p *planner) checkEncrypted(at, text string) {
	if text != "" && p.options.Encrypted != nil && !p.secrets.contains(at) {
		p.problems.Add(at, nil, "is a secret that is stored in plain text: store it encrypted; "+
			"write pulumi config set --secret --path 'talos-proxmox:%s' < file, and revoke the old one", at)
	}
}

// checkSource checks the URL of the source and its credentials.
func (p *planner) checkSource(at string, g *GitOps) {
	if g.URL == "" || p.isUndecrypted(at+".url") {
		return
	}

	source, err := url.Parse(g.URL)
	if err != nil || source.Host == "" || len(source.Path) < len("/a") {
		p.problems.Add(at+".url", g.URL,
			"is not a URL; write it as ssh://git@host/path (not git@host:path), https://host/path or oci://host/path")

		return
	}

	if _, given := source.User.Password(); given {
		p.problems.Add(at+".url", nil, "has a password in it; remove it and set pullSecret.username and pullSecret.password")

		return
	}

	secret, base := *g.PullSecret, at+".pullSecret"

	reject := func(key, text, why string) {
		if text != "" {
			p.problems.Add(base+"."+key, nil, "%s", why)
		}
	}

	switch scheme := source.Scheme; {
	case (scheme == "oci") != (g.Kind == "oci"):
		p.problems.Add(at+".url", g.URL, "does not fit kind: %s; use oci:// with kind: oci, and ssh:// or https:// with kind: git",
			g.Kind)
	case scheme == "ssh":
		p.checkSSH(at, source, secret)
		reject("username", secret.Username, "is for https:// and oci://; remove it, the user is in the URL: ssh://git@…")
		reject("password", secret.Password, "is for https:// and oci://; remove it and set identity")
		reject("ca", secret.CA, "is for https://; remove it and set knownHosts")
	case scheme == "http":
		p.problems.Add(at+".url", g.URL, "is not encrypted, so anybody in the network path could control what the cluster runs; use https://")
	case scheme == "https" || scheme == "oci":
		reject("identity", secret.Identity, "is for ssh://; remove it and set username and password")
		reject("knownHosts", secret.KnownHosts, "is for ssh://; remove it")
		p.checkUser(base, secret)
	default:
		p.problems.Add(at+".url", g.URL, "has a scheme that Flux does not know; use ssh://, https:// or oci://")
	}
}

func (p *planner) checkUser(base string, secret PullSecret) {
	if (secret.Username == "") != (secret.Password == "") {
		p.problems.Add(base, nil, "has one of username and password; set both: with a token, username: git often does")
	}

	if block, _ := pem.Decode([]byte(secret.CA)); secret.CA != "" && (block == nil || block.Type != "CERTIFICATE") {
		p.problems.Add(base+".ca", nil, "is not a certificate; write it as PEM, from -----BEGIN CERTIFICATE----- on")
	}
}

// checkSSH checks the private key, and that a public key is of the server in the URL.
func (p *planner) checkSSH(at string, source *url.URL, secret PullSecret) {
	base := at + ".pullSecret"

	if secret.Identity == "" {
		p.addMissing(base+".identity", "is missing, and ssh:// requires a key; set it")
	} else if p.options.CheckSSHKey != nil && !p.isUndecrypted(base+".identity") {
		if err := p.options.CheckSSHKey(secret.Identity); err != nil {
			p.problems.Add(base+".identity", nil, "%v", err)
		}
	}

	if source.User.Username() == "" {
		p.problems.Add(at+".url", source.String(), "names no user; write it as ssh://git@host/path")
	}

	if p.isUndecrypted(base + ".knownHosts") {
		return
	}

	host := source.Hostname()
	if port := source.Port(); port != "" && port != "22" {
		host = "[" + host + "]:" + port
	}

	for line := range strings.Lines(secret.KnownHosts) {
		names, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		if strings.HasPrefix(names, "|") || strings.ContainsAny(names, "*?") { // hashed, or a pattern
			return
		}

		for name := range strings.SplitSeq(names, ",") {
			if name == host {
				return
			}
		}
	}

	p.problems.Add(base+".knownHosts", nil, "has no line for %s; set it to what ssh-keyscan prints for that server, "+
		"after you have verified its fingerprint", host)
}
