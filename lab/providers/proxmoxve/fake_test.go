package proxmoxve

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	p "github.com/pulumi/pulumi-go-provider"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/property"
	"github.com/stretchr/testify/require"
)

const (
	testPoll  = time.Millisecond
	testToken = "root@pam!test=00000000-0000-0000-0000-000000000001"
)

// answer is what the fake says; a status of 0 is a success.
type answer struct {
	status int
	reason string
	data   any
}

// fake is a Proxmox that records what it is asked and does just enough.
type fake struct {
	*httptest.Server

	mu       sync.Mutex
	requests []string
	vms      map[int]map[string]string
	running  map[int]bool
	files    map[string]float64
	exits    map[string]string // by task type
	// special answers first; false leaves the request to the fake.
	special func(method, path string, params url.Values) (answer, bool)
}

func newFake(t *testing.T) *fake {
	t.Helper()

	f := &fake{vms: map[int]map[string]string{
		900: {
			"name":     "talos",
			"template": "1",
			"scsi0":    "local-lvm:base-900-disk-0,size=10G",
			"ide2":     "none,media=cdrom",
			"efidisk0": "local-lvm:base-900-disk-1,efitype=4m,size=4M",
		},
	}, running: map[int]bool{}, files: map[string]float64{}, exits: map[string]string{}}
	f.Server = httptest.NewUnstartedServer(http.HandlerFunc(f.serve))
	f.Config.ErrorLog = nil
	f.StartTLS()
	t.Cleanup(f.Close)

	return f
}

func (f *fake) serve(w http.ResponseWriter, r *http.Request) {
	_ = r.ParseForm()
	path := strings.TrimPrefix(r.URL.Path, "/api2/json")

	f.mu.Lock()
	if !strings.Contains(path, "/tasks/") {
		f.requests = append(f.requests, r.Method+" "+path+" "+r.Form.Encode())
	}

	a, ok := answer{}, false
	if f.special != nil {
		a, ok = f.special(r.Method, path, r.Form)
	}

	if !ok {
		a = f.do(r.Method, path, r.Form)
	}
	f.mu.Unlock()

	if a.status == 0 {
		_ = json.NewEncoder(w).Encode(map[string]any{"data": a.data})

		return
	}

	// Proxmox says what is wrong in the reason phrase, which net/http's server cannot write.
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer func(c net.Conn) { _ = c.Close() }(conn)

	_, _ = fmt.Fprintf(
		conn, "HTTP/1.1 %d %s\r\nContent-Length: 13\r\nConnection: close\r\n\r\n{\"data\":null}", a.status, a.reason,
	)
}

func upid(kind string) answer {
	return answer{data: "UPID:pve1:0001:0002:0003:" + kind + ":1:root@pam:"}
}

func (f *fake) do(method, path string, params url.Values) answer {
	parts := strings.Split(strings.Trim(path, "/"), "/")

	switch {
	case path == "/cluster/resources":
		var out []any
		for id := range f.vms {
			out = append(out, map[string]any{"vmid": id, "node": "pve1", "type": "qemu"})
		}

		return answer{data: out}
	case path == "/cluster/nextid":
		return answer{data: "100"}
	case strings.HasSuffix(path, "/log"):
		return answer{data: []any{map[string]any{"n": 1, "t": "WARN: something"}}}
	case len(parts) > 3 && parts[2] == "tasks":
		return f.taskStatus(parts[3])
	case strings.HasPrefix(path, "/nodes/pve1/qemu"):
		return f.qemu(method, parts, params)
	case strings.HasSuffix(path, "/query-url-metadata"):
		return answer{data: map[string]any{"filename": "talos.iso", "size": 100}}
	case strings.HasSuffix(path, "/download-url"):
		f.files["local:"+params.Get("content")+"/"+params.Get("filename")] = 100

		return upid("download")
	case strings.Contains(path, "/content/"):
		_, volume, _ := strings.Cut(path, "/content/")
		if method == http.MethodDelete {
			delete(f.files, volume)

			return answer{}
		}

		return answer{data: map[string]any{"format": "raw", "size": 1}}
	case strings.HasSuffix(path, "/content"):
		out := []any{}
		for id, size := range f.files {
			out = append(out, map[string]any{"volid": id, "size": size, "content": "iso", "format": "iso"})
		}

		return answer{data: out}
	default:
		return answer{status: 501, reason: "Method '" + method + " " + path + "' not implemented"}
	}
}

func (f *fake) taskStatus(upid string) answer {
	exit := "OK"
	if e, ok := f.exits[strings.Split(upid, ":")[5]]; ok {
		exit = e
	}

	return answer{data: map[string]any{"status": "stopped", "exitstatus": exit}}
}

func (f *fake) qemu(method string, parts []string, params url.Values) answer {
	if len(parts) == 3 {
		id, _ := strconv.Atoi(params.Get("vmid"))
		f.vms[id] = map[string]string{}
		f.apply(id, params)

		return upid("qmcreate")
	}

	id, _ := strconv.Atoi(parts[3])

	config, ok := f.vms[id]
	if !ok {
		return answer{
			status: 500, reason: fmt.Sprintf("Configuration file 'nodes/pve1/qemu-server/%d.conf' does not exist", id),
		}
	}

	switch action := strings.Join(parts[4:], "/"); {
	case action == "" && method == http.MethodDelete:
		delete(f.vms, id)

		return upid("qmdestroy")
	case action == "config" && method == http.MethodPut:
		f.apply(id, params)

		return answer{}
	case action == "config":
		return answer{data: config}
	case action == "status/current":
		return answer{data: map[string]any{"status": map[bool]string{true: "running", false: "stopped"}[f.running[id]]}}
	case action == "clone":
		to, _ := strconv.Atoi(params.Get("newid"))
		f.vms[to] = maps.Clone(config)
		delete(f.vms[to], "template")
		f.vms[to]["name"] = params.Get("name")

		return upid("qmclone")
	case action == "move_disk":
		return answer{status: 500, reason: "you can't move to the same storage with same format"}
	case action == "resize":
		size, _ := strconv.Atoi(params.Get("size"))
		volume, _, _ := strings.Cut(config[params.Get("disk")], ",size=")
		config[params.Get("disk")] = fmt.Sprintf("%s,size=%dG", volume, size>>30)

		return upid("resize")
	case strings.HasPrefix(action, "status/"):
		f.running[id] = action == "status/start" || action == "status/reboot"

		return upid("qm" + strings.TrimPrefix(action, "status/"))
	default:
		return answer{status: 501, reason: "Method not implemented"}
	}
}

// apply keeps a configuration the way Proxmox prints it.
func (f *fake) apply(id int, params url.Values) {
	for name := range params {
		value := params.Get(name)

		switch o := parseOptions(value, "file"); {
		case name == "delete":
			for gone := range strings.SplitSeq(value, ",") {
				delete(f.vms[id], gone)
			}

			continue
		case strings.HasPrefix(o["file"], "local-lvm:cloudinit"):
			value = fmt.Sprintf("local-lvm:vm-%d-cloudinit,media=cdrom,size=4M", id)
		case isDrive(name) && strings.Contains(value, "size="):
			size, _ := strconv.Atoi(o["size"])
			value = fmt.Sprintf("local-lvm:vm-%d-%s,size=%dG", id, name, size>>30)

			for _, key := range []string{"iothread", "ssd", "discard", "cache"} {
				if o[key] != "" {
					value += "," + key + "=" + o[key]
				}
			}
		case name == "cipassword":
			value = "**********"
		case strings.HasPrefix(name, "net"):
			value = strings.Replace(
				strings.Replace(value, "model=virtio", "virtio="+o["macaddr"], 1), ",macaddr="+o["macaddr"], "", 1,
			)
		}

		f.vms[id][name] = value
	}
}

func (f *fake) recorded() []string {
	f.mu.Lock()
	defer f.mu.Unlock()

	out := f.requests
	f.requests = nil

	return out
}

// rig is a configured provider on a fake or a real endpoint.
type rig struct {
	t *testing.T
	p p.Provider
}

func newRig(t *testing.T, endpoint string) rig {
	t.Helper()

	r := rig{t, newServer(Options{Poll: testPoll}).provider()}
	require.NoError(t, r.p.Configure(t.Context(), p.ConfigureRequest{Args: property.NewMap(map[string]property.Value{
		"endpoint": property.New(endpoint), "apiToken": property.New(testToken), "insecure": property.New("true"),
	})}))

	return r
}

func urn(token string) resource.URN {
	return resource.URN("urn:pulumi:dev::test::" + token + "::node")
}

func (r rig) check(token string, in object) property.Map {
	r.t.Helper()

	resp, err := r.p.Check(
		r.t.Context(), p.CheckRequest{Urn: urn(token), Inputs: toProperties(in), RandomSeed: []byte("0123456789abcdef")},
	)
	require.NoError(r.t, err)
	require.Empty(r.t, resp.Failures)

	return resp.Inputs
}

func (r rig) create(token string, in object) (p.CreateResponse, error) {
	r.t.Helper()

	return r.p.Create(r.t.Context(), p.CreateRequest{Urn: urn(token), Properties: r.check(token, in)})
}

func (r rig) diff(token string, in object, state property.Map, ignore ...string) map[string]p.DiffKind {
	r.t.Helper()

	resp, err := r.p.Diff(
		r.t.Context(), p.DiffRequest{Urn: urn(token), Inputs: r.check(token, in), State: state, IgnoreChanges: ignore},
	)
	require.NoError(r.t, err)

	out := map[string]p.DiffKind{}
	for path, d := range resp.DetailedDiff {
		out[path] = d.Kind
	}

	require.Equal(r.t, len(out) > 0, resp.HasChanges)

	return out
}

func toProperties(in object) property.Map {
	return attributes{}.toMap(in, nil)
}
