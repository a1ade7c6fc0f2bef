package proxmoxve

import (
	"crypto/sha256"
	"fmt"
	"net/url"
	"strings"
	"testing"

	p "github.com/pulumi/pulumi-go-provider"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var labImageSum = fmt.Sprintf("%x", sha256.Sum256(labImage.Encode()))

func talosImage() object {
	return object{
		"nodeName":    "pve1",
		"datastoreId": "local",
		"contentType": "iso",
		"fileName":    "talos.img",
		"url":         "https://factory.test/talos.img",
		"checksum":    labImageSum, "checksumAlgorithm": "sha256", "overwrite": false,
	}
}

func TestDownload(t *testing.T) {
	t.Parallel()

	dc, endpoint := newLab(t)
	w := watch(t, endpoint, func() {})
	r := newRig(t, w.endpoint)

	resp, err := r.create(typeDownloadFile, talosImage())
	require.NoError(t, err)
	assert.Equal(t, "local:iso/talos.img", resp.ID)
	assert.InDelta(t, len(labImage.Encode()), resp.Properties.Get("size").AsNumber(), 0)

	requests := w.recorded()
	require.Len(t, requests, 3)
	assert.True(t, strings.HasPrefix(requests[0], "GET /nodes/pve1/query-url-metadata"))
	assert.Equal(t, url.Values{
		"node":     {"pve1"},
		"storage":  {"local"},
		"content":  {"iso"},
		"filename": {"talos.img"},
		"url":      {"https://factory.test/talos.img"},
		"checksum": {labImageSum}, "checksum-algorithm": {"sha256"}, "verify-certificates": {"1"},
	}, params(t, requests[1]))
	assert.Equal(t, "GET /nodes/pve1/storage/local/content ", requests[2])

	assert.Empty(t, r.diff(typeDownloadFile, talosImage(), resp.Properties))

	read, err := r.p.Read(
		t.Context(),
		p.ReadRequest{
			ID:         resp.ID,
			Urn:        urn(typeDownloadFile),
			Properties: resp.Properties,
			Inputs:     r.check(typeDownloadFile, talosImage()),
		},
	)
	require.NoError(t, err)
	assert.Equal(t, fromMap(resp.Properties), fromMap(read.Properties), "a refresh changes nothing")

	require.NoError(
		t, r.p.Delete(t.Context(), p.DeleteRequest{ID: resp.ID, Urn: urn(typeDownloadFile), Properties: resp.Properties}),
	)
	assert.Empty(t, dc.Volumes("pve1", "local", ""))

	read, err = r.p.Read(t.Context(), p.ReadRequest{ID: resp.ID, Urn: urn(typeDownloadFile), Properties: resp.Properties})
	require.NoError(t, err)
	assert.Empty(t, read.ID)
}

func TestDownloadDiff(t *testing.T) {
	t.Parallel()

	_, endpoint := newLab(t)
	r := newRig(t, endpoint)
	resp, err := r.create(typeDownloadFile, talosImage())
	require.NoError(t, err)

	for name, test := range map[string]struct {
		change object
		want   map[string]p.DiffKind
	}{
		"another address replaces": {
			object{"url": "https://factory.test/other"}, map[string]p.DiffKind{"url": p.UpdateReplace},
		},
		"another name replaces": {
			object{"fileName": "other.img"}, map[string]p.DiffKind{"fileName": p.UpdateReplace},
		},
		"another checksum replaces": {object{"checksum": "abd"}, map[string]p.DiffKind{"checksum": p.UpdateReplace}},
		"another decompression is a note": {
			object{"decompressionAlgorithm": "gz"}, map[string]p.DiffKind{"decompressionAlgorithm": p.Add},
		},
		"no name keeps the one there is":   {object{"fileName": nil}, map[string]p.DiffKind{}},
		"another patience changes nothing": {object{"uploadTimeout": 60.0}, map[string]p.DiffKind{"uploadTimeout": p.Update}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			assert.Equal(t, test.want, r.diff(typeDownloadFile, with(talosImage(), test.change), resp.Properties))
		})
	}
}

func TestDownloadFails(t *testing.T) {
	t.Parallel()

	_, endpoint := newLab(t)
	r := newRig(t, endpoint)
	_, err := r.create(typeDownloadFile, with(talosImage(), object{"fileName": "taken.img"}))
	require.NoError(t, err)

	for problem, change := range map[string]object{
		"file already exists in the datastore": {"fileName": "taken.img"},
		"checksum mismatch":                    {"checksum": strings.Repeat("0", len(labImageSum))},
	} {
		t.Run(problem, func(t *testing.T) {
			t.Parallel()

			resp, err := r.create(typeDownloadFile, with(talosImage(), change))
			require.ErrorContains(t, err, problem)
			assert.Nil(t, resp.PartialState)
			assert.Empty(t, resp.ID)
		})
	}
}

func TestDownloadChecks(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct{ change object }{
		"a checksum without its algorithm": {object{"checksumAlgorithm": nil}},
		"an algorithm without a checksum":  {object{"checksum": nil}},
		"xz":                               {object{"decompressionAlgorithm": "xz"}},
		"import content":                   {object{"contentType": "import"}},
		"an address that is none":          {object{"url": "ftp://factory.test"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			resp, err := Provider(testPoll).Check(
				t.Context(), p.CheckRequest{Urn: urn(typeDownloadFile), Inputs: toProperties(with(talosImage(), test.change))},
			)
			require.NoError(t, err)
			assert.Len(t, resp.Failures, 1)
		})
	}
}
