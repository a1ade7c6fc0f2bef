package rules

import (
	"encoding/json"
	"net"
	"net/url"
	"regexp"
	"strings"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/request"
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
	movingName   = regexp.MustCompile(`(?i)(^|[^a-z])(latest|current|daily|nightly)([^a-z]|$)`)
	movingPath   = regexp.MustCompile(`(?i)/(latest|current|release)/`)
)

func versionedImages(p plan) problem.List {
	var found problem.List

	for _, r := range p.ofType(tokens.File) {
		from, err := url.Parse(r.at("url").text().Value)
		if err == nil && r.at("fileName").isSet() && movingPath.MatchString(from.Path) {
			found = append(found, violation(r.URN, r.Name,
				"the download from %s is the newest build there: choose the URL of one build",
				redactURL(from.String())))

			continue
		}

		name := r.at("fileName").text()
		if name.Value == "" { // the provider uses the URL's
			address, err := url.Parse(r.at("url").text().Value)
			if !name.Known || err != nil || address.Path == "" {
				continue
			}

			name.Value = address.Path[strings.LastIndex(address.Path, "/")+1:]
		}

		if !imageVersion.MatchString(name.Value) || movingName.MatchString(name.Value) {
			found = append(found, violation(r.URN, r.Name,
				"the file name %q has no version: put it in fileName, and choose the URL of that version",
				name.Value))
		}
	}

	return found
}

// imageCommand matches the command that has a host download an image for a template that is made through the API.
var imageCommand = regexp.MustCompile(`talosops\S*(\s.*)?\simage(\s|$)`)

// uncheckedDownload returns the address of a download without a checksum; ok is false for anything else.
func uncheckedDownload(r resource) (address string, ok bool) {
	if r.Type == tokens.File {
		from := r.at("url").text()

		return from.Value, from.Known && !r.at("checksum").isUnknown() && !r.at("checksum").isSet()
	}

	stdin := r.at("stdin").text()
	if r.Type != tokens.LocalCommand || !stdin.Known || !imageCommand.MatchString(r.at("create").text().Value) {
		return "", false
	}

	var req request.ImageFile

	err := json.Unmarshal([]byte(stdin.Value), &req)

	return req.URL, err == nil && req.Checksum == ""
}

func imageChecksum(s settings, o options, r resource) problem.List {
	address, ok := uncheckedDownload(r)
	if !ok {
		return nil
	}

	for _, trusted := range append(o.strings("trusted"), s.FactoryURL+"/image/") {
		if strings.HasPrefix(address, trusted) && isTrustedTransport(trusted) {
			return nil
		}
	}

	return problem.List{
		violation(r.URN, r.Name,
			"the download from %s has no checksum: set checksum and checksumAlgorithm (or, over HTTPS, the place as trusted)",
			redactURL(address)),
	}
}

// isTrustedTransport reports whether nobody else can change a download on the way: HTTPS, or this computer itself.
func isTrustedTransport(address string) bool {
	u, err := url.Parse(address)
	if err != nil {
		return false
	}

	ip := net.ParseIP(u.Hostname())

	return u.Scheme == "https" || (ip != nil && ip.IsLoopback())
}

// redactURL removes the parts of a URL that may contain secrets.
func redactURL(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "an address that is not a URL"
	}

	u.User, u.RawQuery, u.Fragment = nil, "", ""

	return u.String()
}
