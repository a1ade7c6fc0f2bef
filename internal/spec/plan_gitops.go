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
	intervalForm = form{
		regexp.MustCompile(`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`), "is not a duration; write it as 1m or 30s",
	}
	branchForm = form{
		regexp.MustCompile(`^refs/(heads|tags|pull|merge-requests)/[^\s~^:?*\[\\]+$`),
		"is not a branch or tag in full; write it as refs/heads/main or refs/tags/v1.0.0",
	}
	tagOfArtifactForm = form{
		regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`), "is not the tag of an artifact; write it as latest or v1.0.0",
	}
	fluxForm = form{
		regexp.MustCompile(`^2\.([7-9]|[1-9][0-9])\.[0-9]+$`), "is not a version of Flux from 2.7 on, in full; write it without v, as 2.9.5",
	}
	chartForm = form{
		regexp.MustCompile(`^((oci|https|http|file)://\S+|[~./]\S*)$`),
		"is not the place of a chart; write it as oci://host/path, https://host/chart.tgz or a path that begins with /, ./ or ~/",
	}
	digestForm = form{
		regexp.MustCompile(`^sha256:[0-9a-f]{64}$`), "is not a digest; write sha256: and 64 lower-case digits",
	}
)

// WithDefaults returns a copy with the defaults of a cluster of a name; nil = Flux is not installed.
func (g *GitOps) WithDefaults(cluster string) *GitOps {
	if g == nil {
		return nil
	}

	filled := *g
	fill(reflect.ValueOf(&filled).Elem())
	filled.Version = g.Version // which only stack files leave out
	filled.Path = cmp.Or(g.Path, "./clusters/"+cluster)
	filled.PullSecret, filled.Verify = cmp.Or(g.PullSecret, &PullSecret{}), cmp.Or(g.Verify, &Verify{})
	filled.Ref = cmp.Or(g.Ref, map[string]string{"git": "refs/heads/main", "oci": "latest"}[filled.Kind])

	return &filled
}

// Check reports what is wrong with the source and its signatures, below a path.
func (g *GitOps) Check(at string, found *problem.List) {
	p := &planner{problems: found}
	p.checkSource(at, g)
	p.checkVerify(at+".verify", g)
}

// planGitOps judges what Flux reconciles a cluster from; nil = nothing.
func (p *planner) planGitOps(at, cluster string, c *GitOpsConfig) *GitOps {
	if c == nil {
		return nil
	}

	g := c.WithDefaults(cluster)
	g.Chart, g.ChartVersion, g.Digest = c.Operator.Chart, c.Operator.Version, c.Operator.Digest

	refForm := branchForm
	if g.Kind == "oci" {
		refForm = tagOfArtifactForm
	}

	p.check(at+".ref", g.Ref, refForm)
	p.check(at+".interval", g.Interval, intervalForm)
	p.check(at+".version", g.Version, fluxForm)
	p.check(at+".operator.chart", g.Chart, chartForm)
	p.check(at+".operator.digest", g.Digest, digestForm)

	if strings.HasPrefix(g.Chart, "http://") && g.Digest == "" {
		p.problems.Add(at+".operator.digest", nil, "is missing, and %s is not encrypted: set it, or use https:// or oci://", g.Chart)
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

	if p.options.CheckIdentities != nil && g.Age != "" && !p.unknown(at+".age") {
		if err := p.options.CheckIdentities(g.Age); err != nil {
			p.problems.Add(at+".age", nil, "%v", err)
		}
	}

	p.checkSource(at, g)
	p.checkVerify(at+".verify", g)

	return g
}

// checkVerify judges whose signatures are wanted.
func (p *planner) checkVerify(at string, g *GitOps) {
	begins := []string{"-----BEGIN PGP PUBLIC KEY BLOCK-----", "ssh-", "ecdsa-", "sk-"}
	form := "a PGP key in armour, or an SSH key as ssh-ed25519 …"

	if g.Kind == "oci" {
		begins, form = []string{"-----BEGIN PUBLIC KEY-----"}, "cosign's public key, as cosign.pub has it"
	}

	for i, key := range g.Verify.Keys {
		path := fmt.Sprintf("%s.keys[%d]", at, i)
		if !p.unknown(path) && !slices.ContainsFunc(begins, func(begin string) bool {
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
		p.problems.Add(at, nil, "has one of issuer and subject; set both: either alone is anybody's")
	case g.Verify.Issuer != "" && g.Kind != "oci":
		p.problems.Add(at+".issuer", g.Verify.Issuer, "is for kind: oci; set keys")
	case g.Verify.Issuer != "" && len(g.Verify.Keys) > 0:
		p.problems.Add(at, nil, "has keys and an identity; set one of the two, which is all that Flux compares")
	}
}

// checkEncrypted reports a secret that the stack's file has in plain text.
func (p *planner) checkEncrypted(at, text string) {
	if text != "" && p.options.Encrypted != nil && !p.secrets.hold(at) {
		p.problems.Add(at, nil, "is a secret that is stored in plain text: store it encrypted; "+
			"write pulumi config set --secret --path 'talos-proxmox:%s' < file, and take what it was out of use", at)
	}
}

// checkSource judges where Flux reconciles from, and what it is let in with.
func (p *planner) checkSource(at string, g *GitOps) {
	if g.URL == "" || p.unknown(at+".url") {
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

	secret, under := *g.PullSecret, at+".pullSecret"

	refuse := func(key, text, why string) {
		if text != "" {
			p.problems.Add(under+"."+key, nil, "%s", why)
		}
	}

	switch scheme := source.Scheme; {
	case (scheme == "oci") != (g.Kind == "oci"):
		p.problems.Add(at+".url", g.URL, "does not fit kind: %s; use oci:// with kind: oci, and ssh:// or https:// with kind: git",
			g.Kind)
	case scheme == "ssh":
		p.checkSSH(at, source, secret)
		refuse("username", secret.Username, "is for https:// and oci://; remove it, the user stands in the URL: ssh://git@…")
		refuse("password", secret.Password, "is for https:// and oci://; remove it and set identity")
		refuse("ca", secret.CA, "is for https://; remove it and set knownHosts")
	case scheme == "http":
		p.problems.Add(at+".url", g.URL, "is not encrypted, so anybody in the network path could control what the cluster runs; use https://")
	case scheme == "https" || scheme == "oci":
		refuse("identity", secret.Identity, "is for ssh://; remove it and set username and password")
		refuse("knownHosts", secret.KnownHosts, "is for ssh://; remove it")
		p.checkUser(under, secret)
	default:
		p.problems.Add(at+".url", g.URL, "has a scheme that Flux does not know; use ssh://, https:// or oci://")
	}
}

func (p *planner) checkUser(under string, secret PullSecret) {
	if (secret.Username == "") != (secret.Password == "") {
		p.problems.Add(under, nil, "has one of username and password; set both: with a token, username: git often does")
	}

	if block, _ := pem.Decode([]byte(secret.CA)); secret.CA != "" && (block == nil || block.Type != "CERTIFICATE") {
		p.problems.Add(under+".ca", nil, "is not a certificate; write it as PEM, from -----BEGIN CERTIFICATE----- on")
	}
}

// checkSSH judges the key and the server's public keys: one of them has to be of the server that the URL names.
func (p *planner) checkSSH(at string, source *url.URL, secret PullSecret) {
	under := at + ".pullSecret"

	if secret.Identity == "" {
		p.problems.Add(under+".identity", nil, "is missing, and nobody gets in by ssh:// without a key; set it")
	} else if p.options.CheckSSHKey != nil && !p.unknown(under+".identity") {
		if err := p.options.CheckSSHKey(secret.Identity); err != nil {
			p.problems.Add(under+".identity", nil, "%v", err)
		}
	}

	if source.User.Username() == "" {
		p.problems.Add(at+".url", source.String(), "names no user; write it as ssh://git@host/path")
	}

	if p.unknown(under + ".knownHosts") {
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

	p.problems.Add(under+".knownHosts", nil, "has no line of %s; set it to what ssh-keyscan prints of that server, "+
		"after a look at its fingerprint", host)
}
