package rules

import (
	"testing"

	"talos-proxmox/internal/tokens"
)

func file(p props) resource { return newResource(tokens.File, "f", p) }

func TestVersionedImages(t *testing.T) {
	t.Parallel()

	named := func(name any) resource {
		return file(props{"fileName": name, "url": "https://example.org/1.2/x.img"})
	}

	runCases(t, "versioned-images", map[string]policyCase{
		"a version": {
			plan: []resource{
				named("talos-v1.12.6-ce4c980550dd-nocloud-amd64.img"), named("noble-24.04.img"), named("debian-13-20260101.img"),
				named("arch-2026-11.iso"),
			},
		},
		"none": {
			plan: []resource{named("debian.img")},
			want: []string{`f: the file name "debian.img" has no version: put it in fileName`},
		},
		"a major version only": {plan: []resource{named("debian-13.img")}, want: []string{"debian-13.img"}},
		"the latest":           {plan: []resource{named("talos-1.12-latest.iso")}, want: []string{"latest"}},
		"without a name, by the URL": {
			plan: []resource{
				file(props{"url": "https://example.org/x/debian-13-20260101.qcow2?a=1.2"}),
				file(props{"url": "https://example.org/1.2/debian.qcow2"}),
			},
			want: []string{`"debian.qcow2"`},
		},
		"an address of changing builds": {
			plan: []resource{file(props{
				"fileName": "debian-13-20260712-2537.img", "url": "https://user:x@example.org/trixie/latest/debian-13.qcow2?key=x",
			})},
			want: []string{
				"f: the download from https://example.org/trixie/latest/debian-13.qcow2 is the newest build there",
			},
		},
		"a secret name is not shown": {
			plan: []resource{named(secret{"debian.img"})}, want: []string{`the file name "[secret]"`},
		},
	})
}

func TestImageChecksum(t *testing.T) {
	t.Parallel()

	own := testSettings
	own.FactoryURL = "http://127.0.0.1:8080"
	remote := testSettings
	remote.FactoryURL = "http://factory.example.org"
	from := func(url any) resource { return file(props{"url": url}) }

	runCases(t, "image-checksum", map[string]policyCase{
		"with one": {
			plan: []resource{file(props{"url": "https://example.org/a.img", "checksum": "ab", "checksumAlgorithm": "sha256"})},
		},
		"without": {
			plan: []resource{from("https://user:pass@example.org/a.img?token=x")},
			want: []string{
				"f: the download from https://example.org/a.img has no checksum: set checksum and checksumAlgorithm",
			},
		},
		"of the public Image Factory": {
			plan: []resource{from("https://factory.talos.dev/image/ab/v1.12.6/nocloud-amd64.iso")},
		},
		"of an address with the same prefix": {
			plan: []resource{from("https://factory.talos.dev.example.org/image/ab")}, want: []string{"example.org"},
		},
		"of a factory on this computer": {
			settings: &own, plan: []resource{from("http://127.0.0.1:8080/image/ab/v1.12.6/nocloud-amd64.iso")},
		},
		"of a factory without TLS": {
			settings: &remote,
			plan:     []resource{from("http://factory.example.org/image/ab")},
			want:     []string{"http://factory.example.org/image/ab"},
		},
		"of a factory without TLS, for a template that is made through the API": {
			settings: &remote,
			plan: []resource{newResource(tokens.LocalCommand, "f", props{
				"create": "${TALOSOPS:-go run ./cmd/talosops} image",
				"stdin":  secret{`{"proxmox": {"apiToken": "hunter2"}, "url": "http://factory.example.org/image/ab"}`},
			})},
			want: []string{"http://factory.example.org/image/ab"},
		},
		"the same with one": {
			settings: &remote,
			plan: []resource{newResource(tokens.LocalCommand, "f", props{
				"create": "/usr/local/bin/talosops image",
				"stdin":  secret{`{"url": "http://factory.example.org/image/ab", "checksum": "ab"}`},
			})},
		},
		"of a trusted place": {
			options: options{"trusted": []any{"https://example.org/"}}, plan: []resource{from("https://example.org/a.img")},
		},
		"of a trusted place without TLS": {
			options: options{"trusted": []any{"http://example.org/"}},
			plan:    []resource{from("http://example.org/a.img")},
			want:    []string{"http://example.org"},
		},
		"a secret address is not shown": {
			plan: []resource{from(secret{"https://example.org/a.img"})}, want: []string{"the download from [secret]"},
		},
	})
}
