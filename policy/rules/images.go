package rules

import (
	"net"
	"net/url"
	"regexp"
	"strings"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/tokens"
)

func imagePolicies() []policy {
	return []policy{
		{
			Name:        "versioned-images",
			Description: "A downloaded image's file name contains its version.",
			Reason: "A file with the same name is not downloaded again, so without a version in the name an old image would be used as the new one. A version has a dot " +
				"(1.12.6, 24.04) or is a date (20260101); `latest` and `current` are not versions.",
			Stack: versionedImages,
		},
		{
			Name:        "image-checksum",
			Description: "A downloaded image has a checksum, or comes from the stack's Image Factory.",
			Reason: "Whoever can change a downloaded image controls the machines cloned from it. The Image Factory publishes no checksums; its images are named by a " +
				"digest of their schematic, and are downloaded over HTTPS.",
			Options: []option{{
				Key:    "trusted",
				Doc:    "Prefixes of other URLs whose files need no checksum.",
				Schema: map[string]any{"type": "array", "items": map[string]any{"type": "string"}, "default": []any{}},
			}},
			Resource: func() func(settings, options, resource) problem.List { return imageChecksum },
		},
	}
}

var (
	imageVersion = regexp.MustCompile(`\d+\.\d+|(19|20)\d{6}|(19|20)\d{2}-\d{2}`)
	imageMoving  = regexp.MustCompile(`(?i)(^|[^a-z])(latest|current|daily|nightly)([^a-z]|$)`)
	movingFolder = regexp.MustCompile(`(?i)/(latest|current|release)/`)
)

func versionedImages(p plan) problem.List {
	var found problem.List

	for _, r := range p.of(tokens.File) {
		from, err := url.Parse(r.at("url").text().Value)
		if err == nil && r.at("fileName").given() && movingFolder.MatchString(from.Path) {
			found = append(found, refuse(r.URN, r.Name,
				"the download from %s is of whatever is newest there: choose the URL of one build",
				withoutSecrets(from.String())))

			continue
		}

		name := r.at("fileName").text()
		if name.Value == "" { // the provider takes the URL's
			address, err := url.Parse(r.at("url").text().Value)
			if !name.Known || err != nil || address.Path == "" {
				continue
			}

			name.Value = address.Path[strings.LastIndex(address.Path, "/")+1:]
		}

		if !imageVersion.MatchString(name.Value) || imageMoving.MatchString(name.Value) {
			found = append(found, refuse(r.URN, r.Name,
				"the file name %q says no version: put it in fileName, and choose the URL of that version",
				name.Value))
		}
	}

	return found
}

func imageChecksum(s settings, o options, r resource) problem.List {
	address := r.at("url").text()
	if r.Type != tokens.File || !address.Known || r.at("checksum").unknown() || r.at("checksum").given() {
		return nil
	}

	for _, trusted := range append(o.strings("trusted"), s.FactoryURL+"/image/") {
		if strings.HasPrefix(address.Value, trusted) && private(trusted) {
			return nil
		}
	}

	return problem.List{
		refuse(r.URN, r.Name,
			"the download from %s has no checksum: set checksum and checksumAlgorithm (or, over HTTPS, the place as trusted)",
			withoutSecrets(address.Value)),
	}
}

// private tells a way that no one else can change what comes along: HTTPS, or this computer itself.
func private(address string) bool {
	u, err := url.Parse(address)
	if err != nil {
		return false
	}

	ip := net.ParseIP(u.Hostname())

	return u.Scheme == "https" || (ip != nil && ip.IsLoopback())
}

// withoutSecrets leaves out what a URL may hold of them.
func withoutSecrets(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "an address that is not a URL"
	}

	u.User, u.RawQuery, u.Fragment = nil, "", ""

	return u.String()
}
