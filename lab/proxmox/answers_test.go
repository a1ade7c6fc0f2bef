package proxmox_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/proxmox"
)

// deviations are where Proxmox's servers do not answer what their description says: its results are not checked.
var deviations = map[string]string{
	`GET /cluster/nextid: data is "\d+", not of type integer`:                      "the VMID is a string",
	`GET /nodes/{node}/qemu/{vmid}/pending: data\[\d+\].value is .+, not a string`: "values have the types of the configuration",
	`GET /cluster/mapping/pci: data\[\d+\].description is missing`:                 "a mapping without a description has none",
	`POST /access/users/{userid}/token/{tokenid}: data.info.privsep is "1".*`:      "it repeats the request's text",
	`PUT /access/users/{userid}/token/{tokenid}: data.expire is "0".*`:             "it repeats the request's text",
	`GET /pools/{poolid}: data.poolid is not in the schema`:                        "it is there",
}

// TestAnswersAreProxmoxs leads machines, files, pools and mappings through their lives by every implemented method, and
// checks each accepted request and its answer against Proxmox's description.
func TestAnswersAreProxmoxs(t *testing.T) {
	t.Parallel()

	api := description(t)
	rec := &recorder{}
	scenario(t, rec)

	called := map[string]bool{}
	seen := map[string]bool{}

	for _, e := range rec.calls {
		call, vars := e.template(t)
		require.Contains(t, api, call, e.path)

		called[call] = true

		for name, value := range vars {
			e.params[name] = []string{value}
		}

		if !e.isUpload {
			for _, c := range checkParameters(e.params, api[call].Parameters) {
				assert.Fail(t, "Proxmox would not take this", "%s %v: %s", call, e.params, c)
			}
		}

		var doc struct {
			Data any `json:"data"`
		}

		require.NoError(t, json.Unmarshal(e.answer, &doc))

		for _, c := range checkValue("data", doc.Data, api[call].Returns) {
			if d := deviation(call + ": " + c); d != "" {
				seen[d] = true
			} else {
				assert.Fail(t, "Proxmox would not answer this", "%s: %s", call, c)
			}
		}
	}

	for _, m := range proxmox.Methods() {
		assert.True(t, called[m.Method+" "+m.Path], "the scenario does not call %s %s", m.Method, m.Path)
	}

	assert.Len(t, seen, len(deviations), "a deviation is set that does not occur")
}

func deviation(complaint string) string {
	for d := range deviations {
		if regexp.MustCompile("^" + strings.NewReplacer("{", `\{`, "}", `\}`).Replace(d) + "$").MatchString(complaint) {
			return d
		}
	}

	return ""
}
