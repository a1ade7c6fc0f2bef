package recovery

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/luthermonson/go-proxmox"
)

// stopped is the status of a VM that is off.
const stopped = "stopped"

// api is Proxmox's.
type api struct{ client *proxmox.Client }

// readConfig reads the stack's configuration, in plain text, where it is needed.
func (r *recovery) readConfig(ctx context.Context) error {
	if len(r.ours) == 0 && len(r.mappings) == 0 && len(r.VMIDs) == 0 {
		return nil
	}
	out, err := r.Pulumi(ctx, nil, "config", "--stack", r.Stack, "--show-secrets", "--json")
	if err != nil {
		return fmt.Errorf("unable to read the configuration of stack %q: %w", r.Stack, err)
	}
	var values map[string]struct {
		Value string `json:"value"`
	}
	if err := json.Unmarshal(out, &values); err != nil {
		return fmt.Errorf("unable to read the configuration of stack %q: it is no JSON", r.Stack) // the cause would quote secrets
	}
	r.config = make(map[string]string, len(values))
	for key, value := range values {
		r.config[key] = value.Value
	}

	return nil
}

// setting reads a setting of the provider as it does itself: from the configuration, then from the environment.
func (r *recovery) setting(key, variable string) string {
	return cmp.Or(r.config["proxmoxve:"+key], r.Environment("PROXMOX_VE_"+variable))
}

// connect makes a client with the stack's own endpoint and credentials.
func (r *recovery) connect(ctx context.Context) error {
	if len(r.ours) == 0 && len(r.mappings) == 0 {
		return nil // nothing is to be removed
	}
	value := r.setting
	endpoint, err := url.Parse(value("endpoint", "ENDPOINT"))
	if err != nil || endpoint.Scheme != "https" || endpoint.Host == "" {
		return fmt.Errorf("proxmoxve:endpoint of stack %q is not of the form https://host:8006/", r.Stack)
	}

	transport := r.Transport
	if transport == nil {
		transport = http.DefaultTransport.(*http.Transport).Clone()
	}
	if insecure, _ := strconv.ParseBool(value("insecure", "INSECURE")); insecure {
		transport = transport.Clone()
		if transport.TLSClientConfig == nil {
			transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		transport.TLSClientConfig.InsecureSkipVerify = true //nolint:gosec // the user's explicit choice, as for the provider
	}
	options := []proxmox.Option{proxmox.WithHTTPClient(&http.Client{Transport: refusals{transport}})}

	token, ticket := value("apiToken", "API_TOKEN"), value("authTicket", "AUTH_TICKET")
	username, password := value("username", "USERNAME"), value("password", "PASSWORD")
	switch {
	case token != "":
		id, secret, _ := strings.Cut(token, "=")
		r.identity = id
		options = append(options, proxmox.WithAPIToken(id, secret))
	case ticket != "":
		r.identity = userOf(ticket)
		options = append(options, proxmox.WithSession(ticket, value("csrfPreventionToken", "CSRF_PREVENTION_TOKEN")))
	case username != "" && password != "":
		r.identity = username
		options = append(options, proxmox.WithCredentials(&proxmox.Credentials{Username: username, Password: password, Otp: value("otp", "OTP")}))
	default:
		return fmt.Errorf("stack %q has no credentials for Proxmox: state proxmoxve:apiToken, or set PROXMOX_VE_API_TOKEN", r.Stack)
	}
	r.api = &api{proxmox.NewClient("https://"+endpoint.Host+"/api2/json", options...)}
	if token == "" && ticket == "" {
		if err := r.api.client.CreateSession(ctx); err != nil {
			return fmt.Errorf("unable to log in to Proxmox: %w", said(err))
		}
	}

	return nil
}

// userOf reads the user from a ticket: PVE:root@pam:66F2….
func userOf(ticket string) string {
	words := strings.SplitN(ticket, ":", 3)
	if len(words) < 3 {
		return ""
	}

	return words[1]
}

// refusals makes errors of answers that refuse, in Proxmox's own words: the client keeps some of them to itself.
type refusals struct{ next http.RoundTripper }

// refusal is what Proxmox answered instead.
type refusal struct{ status, body string }

func (r *refusal) Error() string {
	return strings.TrimSpace("Proxmox answers " + r.status + " " + r.body)
}

// RoundTrip is part of http.RoundTripper.
func (t refusals) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(request)
	if err != nil || response.StatusCode < http.StatusBadRequest {
		return response, err
	}
	defer response.Body.Close() //nolint:errcheck // it is read
	var answer struct {
		Errors map[string]string `json:"errors"`
	}
	body, _ := io.ReadAll(io.LimitReader(response.Body, 64<<10)) //nolint:errcheck // the status says enough
	r := &refusal{status: response.Status}
	if json.Unmarshal(body, &answer) == nil && len(answer.Errors) > 0 {
		r.body = fmt.Sprint(answer.Errors)
	}

	return nil, r
}

// said takes the request from around a refusal.
func said(err error) error {
	if r := new(refusal); errors.As(err, &r) {
		return r
	}

	return err
}

// machines lists the VMs of the cluster that the credentials may see; what they say of themselves is left to describe.
func (a *api) machines(ctx context.Context) (map[int]machine, error) {
	var list []struct {
		VMID     int    `json:"vmid"`
		Name     string `json:"name"`
		Host     string `json:"node"`
		Status   string `json:"status"`
		Template int    `json:"template"`
	}
	if err := a.client.Get(ctx, "/cluster/resources?type=vm", &list); err != nil {
		return nil, fmt.Errorf("unable to list Proxmox's machines: %w", said(err))
	}
	machines := make(map[int]machine, len(list))
	for _, m := range list {
		machines[m.VMID] = machine{vmid: m.VMID, name: m.Name, host: m.Host, status: m.Status, template: m.Template == 1}
	}

	return machines, nil
}

// describe reads what a machine says of itself; a container says nothing that counts here.
func (a *api) describe(ctx context.Context, m *machine) error {
	var config struct {
		Name        string `json:"name"`
		Description string `json:"description"`
		Lock        string `json:"lock"`
		Template    int    `json:"template"`
	}
	if err := a.client.Get(ctx, a.path(*m, "/config"), &config); err != nil {
		if strings.Contains(err.Error(), "does not exist") {
			return nil
		}

		return fmt.Errorf("unable to read %s: %w", m, said(err))
	}
	m.name, m.description, m.lock, m.template = config.Name, strings.TrimSpace(config.Description), config.Lock, config.Template == 1

	return nil
}

// begunClone is the description of a clone before its first drive is copied: Proxmox writes its name and its own description after that.
const begunClone = "qmclone temporary file"

// cloned tells whether these credentials had Proxmox clone one VM to another VMID on a host, by the first words of the task's log. Its list says what was cloned, but
// not to where.
func (a *api) cloned(ctx context.Context, identity, host string, from, to int) (bool, error) {
	var list []struct {
		UPID string `json:"upid"`
	}
	if err := a.client.Get(ctx, fmt.Sprintf("/nodes/%s/tasks?source=all&typefilter=qmclone&vmid=%d&limit=%d", url.PathEscape(host), from, mostClones), &list); err != nil {
		return false, fmt.Errorf("unable to list the tasks of %s: %w", host, said(err))
	}
	for _, t := range list {
		// UPID:host:pid:pstart:starttime:type:id:user:
		if words := strings.Split(t.UPID, ":"); len(words) < 8 || words[7] != identity {
			continue
		}
		var log []struct {
			Text string `json:"t"`
		}
		if err := a.client.Get(ctx, fmt.Sprintf("/nodes/%s/tasks/%s/log?limit=5", url.PathEscape(host), url.PathEscape(t.UPID)), &log); err != nil {
			return false, fmt.Errorf("unable to read the task %s: %w", t.UPID, said(err))
		}
		for _, line := range log {
			if line.Text == fmt.Sprintf("creating a clone of VM %d with ID %d", from, to) {
				return true, nil
			}
		}
	}

	return false, nil
}

// mostClones bounds how many clones of a template are looked through, the newest first.
const mostClones = 500

// task is one that runs.
type task struct{ Type, ID string }

func (a *api) tasks(ctx context.Context, host string) ([]task, error) {
	var list []struct {
		Type string `json:"type"`
		ID   string `json:"id"`
		End  int64  `json:"endtime"`
	}
	if err := a.client.Get(ctx, "/nodes/"+url.PathEscape(host)+"/tasks?source=active", &list); err != nil {
		return nil, fmt.Errorf("unable to list the tasks of %s: %w", host, said(err))
	}
	var running []task
	for _, t := range list {
		if t.End == 0 {
			running = append(running, task{t.Type, t.ID})
		}
	}

	return running, nil
}

func (a *api) path(m machine, rest string) string {
	return fmt.Sprintf("/nodes/%s/qemu/%d%s", url.PathEscape(m.host), m.vmid, rest)
}

func (a *api) stop(ctx context.Context, m machine, poll time.Duration) error {
	var id proxmox.UPID
	if err := a.client.Post(ctx, a.path(m, "/status/stop"), nil, &id); err != nil {
		return said(err)
	}

	return a.wait(ctx, id, poll)
}

// destroy removes the machine with everything that is its own.
func (a *api) destroy(ctx context.Context, m machine, poll time.Duration) error {
	var id proxmox.UPID
	if err := a.client.Delete(ctx, a.path(m, "?purge=1&destroy-unreferenced-disks=1"), &id); err != nil {
		return said(err)
	}

	return a.wait(ctx, id, poll)
}

// wait sees a task to its end.
func (a *api) wait(ctx context.Context, id proxmox.UPID, poll time.Duration) error {
	t := proxmox.NewTask(id, a.client)
	if t == nil {
		return errors.New("Proxmox names no task") //nolint:staticcheck // a name
	}
	for {
		if err := t.Ping(ctx); err != nil {
			return said(err)
		}
		if t.IsCompleted {
			break
		}
		if err := sleep(ctx, poll); err != nil {
			return err
		}
	}
	if !t.IsSuccessful && !strings.HasPrefix(t.ExitStatus, "WARNINGS:") {
		return fmt.Errorf("its task ended with %q", t.ExitStatus)
	}

	return nil
}
