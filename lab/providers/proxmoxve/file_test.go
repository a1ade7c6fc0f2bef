package proxmoxve

import (
	"crypto/sha256"
	"fmt"
	"net/url"
	"strings"
	"testing"

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

	_, endpoint := newLab(t)
	w := startProxy(t, endpoint, func() {})
	r := newTestProvider(t, w.endpoint)

	resp, err := r.create(typeDownloadFile, talosImage())
	require.NoError(t, err)
	assert.Equal(t, "local:iso/talos.img", resp.ID)
	assert.InDelta(t, len(labImage.Encode()), resp.Properties.Get("size").AsNumber(), 0)

	requests := w.takeRequests()
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
}
