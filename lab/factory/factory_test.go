package factory_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/talos"
	"talos-proxmox/lab/factory"
	"talos-proxmox/lab/image"
)

const (
	plainID = "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba"
	agentID = "ce4c980550dd2ab1b17bbf2b08801c7eb59418eafe8f279833297925d67c7515"
)

func serve(t *testing.T, path string) (*factory.Factory, string) {
	t.Helper()

	f, err := factory.New(path)
	require.NoError(t, err)

	server := httptest.NewServer(f.Handler())
	t.Cleanup(server.Close)

	return f, server.URL
}

func do(t *testing.T, method, url, body string) (*http.Response, string) {
	t.Helper()

	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)

	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)

	defer response.Body.Close() //nolint:errcheck

	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)

	return response, string(text)
}

func register(t *testing.T, url, schematic string) string {
	t.Helper()

	response, body := do(t, http.MethodPost, url+"/schematics", schematic)
	require.Equal(t, http.StatusCreated, response.StatusCode, body)

	var answer struct{ ID string }
	require.NoError(t, json.Unmarshal([]byte(body), &answer))

	return answer.ID
}

func TestSchematicIDsAreThoseOfThePublicFactory(t *testing.T) {
	t.Parallel()

	extensions := talos.Schematic{
		Extensions: []string{"tailscale", "iscsi-tools"},
		KernelArgs: []string{"console=ttyS0"},
		META:       []talos.MetaValue{{Key: 10, Value: "a: b\n"}},
	}

	tests := map[string]struct{ schematic, id string }{
		"plain Talos":                  {"customization: {}\n", plainID},
		"a schematic without anything": {"{}", plainID},
		"only the guest agent": {
			"customization:\n  systemExtensions:\n    officialExtensions: [siderolabs/qemu-guest-agent]\n", agentID,
		},
		"as the program computes it": {extensions.YAML(), extensions.ID()},
		"JSON, which is YAML": {
			`{"customization":{"systemExtensions":{"officialExtensions":["siderolabs/qemu-guest-agent"]}}}`, agentID,
		},
		"the program's own empty schematic": {talos.Schematic{}.YAML(), plainID},
	}

	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			_, url := serve(t, "")
			assert.Equal(t, test.id, register(t, url, test.schematic))
		})
	}
}

// TestImages: images are compressed as their names say, and HEAD returns their size without their body.
func TestImages(t *testing.T) {
	t.Parallel()

	for name, reader := range map[string]func(io.Reader) (io.Reader, error){
		"nocloud-amd64.raw.zst":            func(r io.Reader) (io.Reader, error) { return zstd.NewReader(r) },
		"metal-arm64.iso":                  func(r io.Reader) (io.Reader, error) { return r, nil },
		"nocloud-amd64-secureboot.raw.zst": func(r io.Reader) (io.Reader, error) { return zstd.NewReader(r) },
		"nocloud-amd64-secureboot.iso":     func(r io.Reader) (io.Reader, error) { return r, nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			_, url := serve(t, "")
			address := url + "/image/" + plainID + "/v1.12.6/" + name
			response, body := do(t, http.MethodGet, address, "")
			require.Equal(t, http.StatusOK, response.StatusCode, body)
			assert.Equal(t, `attachment; filename="`+name+`"`, response.Header.Get("Content-Disposition"))

			raw, err := reader(strings.NewReader(body))
			require.NoError(t, err)

			content, err := io.ReadAll(raw)
			require.NoError(t, err)

			got, err := image.Decode(content)
			require.NoError(t, err)

			stem, format, _ := strings.Cut(name, ".")
			stem, secureBoot := strings.CutSuffix(stem, "-secureboot")
			platform, arch, _ := strings.Cut(stem, "-")
			assert.Equal(t, image.Image{
				OS: "talos", Version: "v1.12.6", Schematic: plainID, Platform: platform, Arch: arch, Live: format == "iso",
				SecureBoot: secureBoot, EnrollsKeys: secureBoot && format == "iso", // disk images since 1.14
			}, got)

			_, err = image.Decode([]byte(body))
			assert.Equal(t, format == "iso", err == nil, "a compressed image is not bootable")

			response, empty := do(t, http.MethodHead, address, "")
			assert.Empty(t, empty)
			assert.Equal(t, int64(len(body)), response.ContentLength)
		})
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()

	_, url := serve(t, "")
	image := func(version, name string) string { return "/image/" + plainID + "/" + version + "/" + name }

	for name, test := range map[string]struct {
		path, body string // POST if there is a body
		status     int
		text       string
	}{
		"an unknown schematic":            {"/image/abc/v1.12.6/nocloud-amd64.iso", "", 404, "schematic abc not found"},
		"an unknown version":              {image("v1.2.3", "nocloud-amd64.iso"), "", 404, "Talos version v1.2.3 not found"},
		"an unknown version's extensions": {"/version/v1.2.3/extensions/official", "", 404, "not found"},
		"an unknown platform":             {image("v1.12.6", "moon-amd64.raw.zst"), "", 400, `invalid platform: "moon"`},
		"an unknown architecture":         {image("v1.12.6", "nocloud-mips.iso"), "", 400, `invalid architecture: "mips"`},
		"an unknown format":               {image("v1.12.6", "nocloud-amd64.zip"), "", 400, `invalid image format: "zip"`},
		"no image name at all":            {image("v1.12.6", "kernel"), "", 400, "invalid profile path"},

		"a schematic with an unknown field": {"/schematics", "customisation: {}", 400, "customisation"},
		"a schematic that is not YAML":      {"/schematics", "\t", 400, ""},
		"an empty schematic":                {"/schematics", "\n", 400, "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			method := http.MethodGet
			if test.body != "" {
				method = http.MethodPost
			}

			response, body := do(t, method, url+test.path, test.body)
			assert.Equal(t, test.status, response.StatusCode)
			assert.Contains(t, body, test.text)
		})
	}
}

func TestImagesOfUnknownExtensionsAreRefused(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		extension, version string
		refused            bool
	}{
		"an existing one":               {"siderolabs/qemu-guest-agent", "v1.12.6", false},
		"by its former name":            {"siderolabs/i915-ucode", "v1.12.6", false},
		"misspelt":                      {"siderolabs/qemu-gest-agent", "v1.12.6", true},
		"without its name space":        {"qemu-guest-agent", "v1.12.6", true},
		"of a later Talos":              {"siderolabs/uhid", "v1.12.0", true},
		"of a later Talos, once it has": {"siderolabs/uhid", "v1.13.0", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			f, url := serve(t, "")
			id := register(t, url, "customization: {systemExtensions: {officialExtensions: ["+test.extension+"]}}")
			response, body := do(t, http.MethodGet, url+"/image/"+id+"/"+test.version+"/nocloud-amd64.raw.zst", "")
			_, err := f.Resolve("127.0.0.1:8080/nocloud-installer/" + id + ":" + test.version)

			if !test.refused {
				assert.Equal(t, http.StatusOK, response.StatusCode, body)
				assert.NoError(t, err)

				return
			}

			assert.Equal(t, http.StatusBadRequest, response.StatusCode)
			assert.Contains(t, body, `official extension "`+test.extension+`" is not available for Talos version `+test.version)
			assert.ErrorContains(t, err, test.extension)
		})
	}
}

func TestVersionsAndExtensionsAreListed(t *testing.T) {
	t.Parallel()

	_, url := serve(t, "")

	_, body := do(t, http.MethodGet, url+"/versions", "")

	var versions []string
	require.NoError(t, json.Unmarshal([]byte(body), &versions))
	assert.Equal(t, factory.Versions(), versions)
	assert.Contains(t, versions, "v1.12.0")
	assert.Contains(t, versions, "v1.13.9")
	assert.Contains(t, versions, "v1.14.4")
	assert.NotContains(t, strings.Join(versions, " "), "v1.11.", "its support has ended")

	_, body = do(t, http.MethodGet, url+"/version/1.12.6/extensions/official", "")

	var list []struct{ Name, Ref string }
	require.NoError(t, json.Unmarshal([]byte(body), &list))

	refs := map[string]string{}
	for _, e := range list {
		refs[e.Name] = e.Ref
	}

	assert.Equal(t, "siderolabs/qemu-guest-agent:v1.12.6", refs["siderolabs/qemu-guest-agent"])
	assert.Equal(
		t, "siderolabs/nvidia-open-gpu-kernel-modules-lts:580.105.08-v1.12.6",
		refs["siderolabs/nvidia-open-gpu-kernel-modules-lts"],
	)
}

func TestResolveInstallers(t *testing.T) {
	t.Parallel()

	f, url := serve(t, "")
	register(t, url, talos.Schematic{Extensions: []string{"qemu-guest-agent"}}.YAML())

	program := talos.Factory{URL: url}.Installer(agentID, "v1.12.6", talos.Kind{Platform: "nocloud"})

	tests := map[string]struct {
		reference string
		want      image.Image
		refusal   string
	}{
		"the program's own": {program, image.Image{Schematic: agentID, Version: "v1.12.6", Platform: "nocloud"}, ""},
		"without a platform": {
			"any.example/installer/" + agentID + ":v1.14.0",
			image.Image{Schematic: agentID, Version: "v1.14.0", Platform: "metal"},
			"",
		},
		"for secure boot": {
			"any.example/metal-installer-secureboot/" + agentID + ":v1.13.0",
			image.Image{Schematic: agentID, Version: "v1.13.0", Platform: "metal", SecureBoot: true},
			"",
		},
		"Talos' stock installer": {
			"any.example/siderolabs/installer:v1.12.6",
			image.Image{Schematic: plainID, Version: "v1.12.6", Platform: "metal"},
			"",
		},
		"Talos' stock installer, of a release that has none (Talos 1.14, hack/release.toml)": {
			"ghcr.io/siderolabs/installer:v1.14.0", image.Image{}, "ghcr.io/siderolabs/installer:v1.14.0: not found",
		},
		"an unknown schematic": {"any.example/nocloud-installer/abc:v1.12.6", image.Image{}, "schematic abc not found"},
		"an unknown version": {
			"any.example/nocloud-installer/" + plainID + ":v9.9.9", image.Image{}, "v9.9.9 not found",
		},
		"another image":             {"any.example/library/debian:13", image.Image{}, "not an installer image"},
		"a reference without a tag": {"any.example/nocloud-installer/" + plainID, image.Image{}, "not an installer image"},
		"nothing":                   {"", image.Image{}, "not an installer image"},
	}

	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			got, err := f.Resolve(test.reference)
			if test.refusal != "" {
				require.ErrorContains(t, err, test.refusal)

				return
			}

			require.NoError(t, err)

			test.want.OS, test.want.Arch = "talos", "amd64"
			assert.Equal(t, test.want, got)
		})
	}
}

func TestSchematicsOutliveTheFactory(t *testing.T) {
	t.Parallel()

	path := filepath.Join(t.TempDir(), "state", "schematics.json")
	_, url := serve(t, path)
	id := register(
		t, url,
		talos.Schematic{
			Extensions: []string{"tailscale"}, KernelArgs: []string{"quiet"}, META: []talos.MetaValue{{Key: 10, Value: "x"}},
		}.YAML(),
	)

	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	again, _ := serve(t, path)
	schematic, known := again.Schematic(id)
	require.True(t, known)
	assert.Equal(
		t,
		factory.Schematic{
			ID: id, Extensions: []string{"siderolabs/tailscale"}, KernelArgs: []string{"quiet"}, META: map[uint8]string{10: "x"},
		},
		schematic,
	)

	_, known = again.Schematic("abc")
	assert.False(t, known)

	require.NoError(t, os.WriteFile(path, []byte("{"), 0o600))

	_, err = factory.New(path)
	assert.ErrorContains(t, err, "delete the file", "a broken file is an error")
}
