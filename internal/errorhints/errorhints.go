// Package errorhints has advice for errors of Proxmox VE, without Pulumi and without network.
package errorhints

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Subject is what an operation failed on. Empty fields are unknown.
type Subject struct {
	// Name is of the machine or file, VMID of the machine, Host the Proxmox host.
	Name string
	VMID int
	Host string
	// Stack is the stack's name.
	Stack string
	// Template is the VMID of the machine's template, 0 for none; Datastores are those of its disks.
	Template   int
	Datastores []string
	// Holder is the machine that already has the VMID; nil = unknown.
	Holder *Holder
}

// Holder is a machine whose VMID is needed.
type Holder struct {
	Name, Host string
	// Owner is the stack that created it, empty if none did; Ours means that it is the subject's.
	Owner string
	Ours  bool
	// Lost: its owner has the names of the subject's stack, whose state does not know it.
	Lost bool
}

// String names the subject: one-general-1 (VM 3000 on host pve1).
func (s Subject) String() string {
	var details []string
	if s.VMID != 0 {
		details = append(details, fmt.Sprintf("VM %d", s.VMID))
	}

	if s.Host != "" {
		details = append(details, "on host "+s.Host)
	}

	if len(details) == 0 {
		return s.Name
	}

	return fmt.Sprintf("%s (%s)", s.Name, strings.Join(details, " "))
}

// host returns the host for use in a sentence.
func (s Subject) host() string {
	if s.Host == "" {
		return "its host"
	}

	return s.Host
}

// lockedVM returns the VM whose lock failed the operation: a clone fails on its template's.
func (s Subject) lockedVM(operation string) int {
	if operation == "create" && s.Template != 0 {
		return s.Template
	}

	return s.VMID
}

// missingAdvice names everything that the machine needs and Proxmox may not have.
func (s Subject) missingAdvice(operation string) string {
	var things []string
	if s.Template != 0 && operation == "create" {
		things = append(things, s.templateAdvice())
	}

	if len(s.Datastores) > 0 {
		things = append(
			things,
			fmt.Sprintf(
				"its datastore %s (`pvesm status` lists those that there are; bring it back, or %s)",
				strings.Join(s.Datastores, ", "), otherDatastoreAdvice,
			),
		)
	}

	if len(things) == 0 {
		return fmt.Sprintf("Proxmox does not have what it names: compare it with what %s has", s.host())
	}

	return fmt.Sprintf("%s lacks something that it needs: %s", s.host(), strings.Join(things, ", or "))
}

// templateAdvice is about a missing template.
func (s Subject) templateAdvice() string {
	return fmt.Sprintf(
		"its template, VM %d (`qm config %d`; if it was removed behind Pulumi's back, restore it, or choose another "+
			"talos-proxmox:templates.<class>.firstVmid, under which it is rebuilt: running machines stay, unless they "+
			"are linked clones)",
		s.Template, s.Template,
	)
}

// otherDatastoreAdvice names the cost: a pool has one datastore.
const otherDatastoreAdvice = "choose another datastore, which moves the disks of all machines that the pool has"

// TakenAdvice returns advice for a VMID that another machine has.
func (s Subject) TakenAdvice() string {
	alone := fmt.Sprintf("set a free VMID for %s alone, nodes.<n>.vmid of its pool", s.Name)

	removed := fmt.Sprintf("`talos-proxmox recover %s --vmid %d` removes it", s.Stack, s.VMID)
	switch h := s.Holder; {
	case h == nil:
		return fmt.Sprintf("a machine of this Proxmox cluster has VMID %d, and its description there says whose it is. If it is "+
			"%s and names this stack, an interrupted run left it, and %s. Any other stays: %s", s.VMID, s.Name, removed, alone)
	case h.Lost:
		return fmt.Sprintf("VM %d is %s on %s, of the stack %s, and this state does not have it: the state was lost, or "+
			"this is another backend (`pulumi whoami --verbose` names it). Log in to the right one, restore the state or "+
			"import the machines (docs/recovery.md, \"The state is lost\"); do not remove anything", s.VMID, h.Name, h.Host, h.Owner)
	case h.Ours && h.Name == s.Name:
		return fmt.Sprintf("an interrupted run of this stack left VM %d on %s: %s", s.VMID, h.Host, removed)
	case h.Owner != "":
		return fmt.Sprintf(
			"VM %d is %s on %s, and belongs to the stack %s: leave it, and %s", s.VMID, h.Name, h.Host, h.Owner, alone,
		)
	case h.Name == s.Name:
		return fmt.Sprintf("VM %d is %s on %s, and no stack made it: `talos-proxmox import %s` adds it to this stack "+
			"(docs/migration.md); otherwise leave it, and %s", s.VMID, h.Name, h.Host, s.Stack, alone)
	default:
		return fmt.Sprintf("VM %d is %s on %s, and no stack made it: leave it, and %s", s.VMID, h.Name, h.Host, alone)
	}
}

// row is a pattern of Proxmox' error messages with advice: a text with {host}, {vmid}, {stack} and the pattern's
// groups, {1}, {2}; or a function, if it depends on more.
type row struct {
	pattern *regexp.Regexp
	text    string
	advise  func(s Subject, operation string, match []string) string
}

// hint returns a row's advice for a subject.
func (r row) hint(s Subject, operation string, match []string) string {
	if r.advise != nil {
		return r.advise(s, operation, match)
	}

	values := []string{"{host}", s.host(), "{vmid}", strconv.Itoa(s.VMID), "{stack}", s.Stack}
	for i := range match {
		values = append(values, fmt.Sprintf("{%d}", i), match[i])
	}

	return strings.NewReplacer(values...).Replace(r.text)
}

// takenPattern matches the errors for a VMID that another machine has; only that of a creation names the host.
var takenPattern = regexp.MustCompile(`unable to create VM \d+(?:: config file| - VM \d+) already exists`)

// IsTaken reports whether an error is about a VMID that another machine has.
func IsTaken(message string) bool { return takenPattern.MatchString(message) }

// accountAdvice is about a part of an account that exists already.
const accountAdvice = ", and its comment under Datacenter, Permissions says whose it is. If an interrupted run of this " +
	"stack left it, `talos-proxmox recover {stack}` removes it. Anybody else's stays: ask whose it is. After the loss of a " +
	"state, `talos-proxmox import` adds it or says how to remove it (docs/recovery.md)"

const mappingAdvice = "there is a mapping {1}, and its comment under Datacenter, Resource Mappings says whose it is. If it " +
	"names this stack, an interrupted run left it, and `talos-proxmox recover {stack}` removes it. Anybody else's stays: " +
	"give the device another name in hosts[…] and in the pools that use it"

// rows are tried in order. Their advice must not harm a running cluster.
var rows = []row{
	{pattern: takenPattern, advise: func(s Subject, _ string, _ []string) string { return s.TakenAdvice() }},
	{pattern: regexp.MustCompile(`pci ID '([^']+)' already defined`), text: mappingAdvice},
	{pattern: regexp.MustCompile(`usb ID '([^']+)' already defined`), text: mappingAdvice},
	{pattern: regexp.MustCompile(`(role|user) '([^']+)' already exists`), text: "there is a {1} {2}" + accountAdvice},
	{pattern: regexp.MustCompile(`Token already exists`), text: "there is a token of this name" + accountAdvice},
	{pattern: regexp.MustCompile(`failed to complete with exit code: WARNINGS: \d+`), advise: warningsAdvice},
	{
		pattern: regexp.MustCompile(`storage '([^']+)' (is disabled|is not available on node|does not support vm images|` +
			`is not configured for content-type)`),
		text: "enable {1} on {host} for disk images (`pvesm status --content images` lists those that are), or " +
			otherDatastoreAdvice,
	},
	{
		pattern: regexp.MustCompile(`out of space|No space left on device|reached threshold|not enough free space|copy failed`),
		text:    "the storage on {host} is full: make room (`pvesm status` shows how full it is), or " + otherDatastoreAdvice,
	},
	{ // Only the task's log has the cause: wget exits with 8 for any error response.
		pattern: regexp.MustCompile(`invalid server response: '404|404 Not Found|download failed: exit code 8`),
		text: "there is no such file any more, or there never was: choose a build (of Talos, a version) that its " +
			"publisher has now, or set talos-proxmox:templates.<class>.url to a place that has the file",
	},
	{
		pattern: regexp.MustCompile(`(?s)could not download file '([^']+)'.*checksum mismatch: got .*, aborting`),
		text: "{host} has a file of this name already, and it is not the one that talos-proxmox:templates.<class>.checksum " +
			"means. If no machine uses it (`grep -r {1} /etc/pve/nodes` finds nothing), remove it from the datastore and run " +
			"this again",
	},
	{
		pattern: regexp.MustCompile(`checksum mismatch: got`),
		text: "the file is not the one that talos-proxmox:templates.<class>.checksum means: compare it with what the " +
			"publisher states for this build, and correct it; if they are the same, the file was changed on its way",
	},
	{
		pattern: regexp.MustCompile(`VM is locked \(([^)]+)\)`),
		advise: func(s Subject, operation string, match []string) string {
			return fmt.Sprintf("wait for the end of the %s of VM %[2]d; if no such task runs any more, `qm unlock %[2]d` "+
				"on %[3]s", match[1], s.lockedVM(operation), s.host())
		},
	},
	{ // Proxmox answers 400, but has written the change.
		pattern: regexp.MustCompile(`hotplug problem - `),
		text: "VM {vmid} cannot have this while it runs, and its next start brings it: correct what the message names, " +
			"drain its node, and `qm reboot {vmid}` on {host}",
	},
	{
		pattern: regexp.MustCompile(`VM is paused`),
		text: "VM {vmid} is paused: `qm status {vmid} --verbose` on {host} says whether somebody paused it, or its " +
			"storage is full (io-error). Make room, then `qm resume {vmid}` and `pulumi up`, which restarts it where a " +
			"change waits for that",
	},
	{
		pattern: regexp.MustCompile(`VM \d+ to pool ([^ :]+): .*does not exist`),
		text: "there is no resource pool {1}: `pvesh create /pools --poolid {1}` on {host}, and " +
			"`pvesh set /pools/{1} --vms {vmid}`, which no later run does",
	},
	// The provider hides Proxmox' own message if something "does not exist".
	{
		pattern: regexp.MustCompile(`the requested resource does not exist`),
		advise:  func(s Subject, operation string, _ []string) string { return s.missingAdvice(operation) },
	},
	{
		pattern: regexp.MustCompile(`unable to find configuration file for VM (\d+)`),
		advise: func(s Subject, operation string, match []string) string {
			if operation == "create" && match[1] == strconv.Itoa(s.Template) {
				return fmt.Sprintf("%s lacks %s", s.host(), s.templateAdvice())
			}

			return s.missingAdvice(operation)
		},
	},
	{
		pattern: regexp.MustCompile(`protection mode enabled`),
		text: "protect: true of the stack file protects it, or someone did in Proxmox: ask who. If it may go with its " +
			"data: protect: false and an up before; or `qm set {vmid} --protection 0` on {host}",
	},
	{
		pattern: regexp.MustCompile(`\(pool '([^']+)' does not exist\)`),
		text:    "there is no resource pool {1}: `pvesh create /pools --poolid {1}` on {host}",
	},
	{
		pattern: regexp.MustCompile(`bridge '([^']+)' does not exist`),
		text: "{host} has no bridge {1}: create it there (System, Network), or correct network.bridge or extraNICs of the " +
			"pool in the stack file",
	},
	{pattern: regexp.MustCompile(`Permission check failed( \(([^)]+)\))?`), advise: permissionAdvice},
	{ // Only Proxmox' log says which of these it is.
		pattern: regexp.MustCompile(`HTTP 401 response|Authentication failed!`),
		text: "check proxmoxve:apiToken (its id, its secret, its expiry); a password's session lasts two hours, a " +
			"token has no such end",
	},
	{
		pattern: regexp.MustCompile(`ACL update failed: 400`),
		text: "nobody gives away what he does not have: give the program's role what docs/permissions.md lists for " +
			"accounts",
	},
	{
		pattern: regexp.MustCompile(`no quorum|/etc/pve/.* - Permission denied`),
		text: "the cluster has no quorum: `pvecm status` on a host shows who is missing; running machines keep " +
			"running in the meantime",
	},
	{
		pattern: regexp.MustCompile(`certificate signed by unknown authority`),
		text: "this computer does not trust the Proxmox cluster's own certificate authority: copy /etc/pve/pve-root-ca.pem " +
			"from a host, compare its fingerprint with the one on the host's console, and name the copy in SSL_CERT_FILE " +
			"(docs/trust.md)",
	},
	{
		pattern: regexp.MustCompile(`certificate is (?:not )?valid for|doesn't contain any IP SANs`),
		text: "the certificate does not have the name or address of the endpoint: write one that it has, a host's own address or " +
			"name; after a change of address `pvecm updatecerts --force` on the host makes a new one (docs/trust.md)",
	},
	{
		pattern: regexp.MustCompile(`first record does not look like a TLS handshake|HTTP response to HTTPS client`),
		text:    "this is not the port of Proxmox' API, which is 8006: https://10.0.0.2:8006/",
	},
	{
		pattern: regexp.MustCompile(`dial tcp \S+:443: .*(?:connection refused|i/o timeout|no route to host)`),
		text:    "an endpoint without a port means port 443, and Proxmox' API has port 8006: https://10.0.0.2:8006/",
	},
	// A refused connection is to the host of the endpoint or of a shell; one that Proxmox itself cannot open is to the
	// machine's host.
	{
		pattern: regexp.MustCompile(`dial tcp ([^ ]+:\d+): .*(?:connection refused|i/o timeout|no route to host)`),
		text: "nothing answers at {1}: look at its network and services first (`systemctl status pveproxy ssh`); a " +
			"restart of the host stops the machines on it",
	},
	{
		pattern: regexp.MustCompile(`No route to host|HTTP 59[5-9] response|connection refused|i/o timeout`),
		text: "{host} cannot be reached: look at its network and pveproxy first; a restart of the host stops the " +
			"machines on it",
	},
	{
		pattern: regexp.MustCompile(`refusing to override existing file '([^']*/)?([^']+)'`),
		text: "if an earlier run was interrupted, its download may have ended meanwhile: run this again. Otherwise a file " +
			"that this stack did not create has this name. If no machine uses it (`grep -r {2} /etc/pve/nodes` finds " +
			"nothing), remove {1}{2} on {host}",
	},
	{pattern: regexp.MustCompile(`shrink|is lower than current size`), text: "disks only grow: use at least the size that it has"},
	{
		pattern: regexp.MustCompile(`PCI device mapping (not found for|invalid)`),
		text: "the device is not where the stack file says: compare pci of hosts[].gpus and hosts[].devices with " +
			"`lspci -Dnn` on {host} and correct it there; the PCI mapping follows",
	},
	{
		pattern: regexp.MustCompile(`USB (device mapping not found for|Mapping invalid)`),
		text: "the USB device is not where the stack file says: plug it in, or compare usb of hosts[].devices with `lsusb` on " +
			"{host} and correct it there; the USB mapping follows",
	},
	{pattern: regexp.MustCompile(`got timeout|got lock request timeout`), text: "{host} was too busy: look for long tasks there"},
	{
		pattern: regexp.MustCompile(`connection reset|EOF|broken pipe`),
		text:    "the connection was lost, and what was asked for may have been done or not; `qm list` on {host} shows it",
	},
	{
		pattern: regexp.MustCompile(`start failed`),
		text:    "the task's log on {host} says why (mostly memory, a device or a bridge)",
	},
}

// warningsAdvice is about a task that ended with warnings: after a creation, the machine is not in the state.
func warningsAdvice(s Subject, operation string, _ []string) string {
	if operation != "create" {
		return fmt.Sprintf("the work was done; read the warnings in the task's log on %s", s.host())
	}

	return fmt.Sprintf("the machine was made, but Pulumi does not know it: read the warnings in the task's log on %s, then "+
		"`talos-proxmox recover %s --vmid %d` removes it", s.host(), s.Stack, s.VMID)
}

// permissionAdvice is about a missing privilege.
func permissionAdvice(_ Subject, _ string, match []string) string {
	switch {
	case strings.Contains(match[2], "root@pam"):
		return "Proxmox lets only root@pam do this, whatever the role: take what needs it out of the stack file"
	case match[2] == "":
		return "give the program's role what docs/permissions.md lists"
	default:
		return fmt.Sprintf("give the program's role this privilege on this path (%s); docs/permissions.md has the "+
			"whole role",
			match[2])
	}
}

// Advice returns only what to do about an error; empty for one without a row.
func Advice(s Subject, operation, message string) (advice string, known bool) {
	for _, r := range rows {
		if match := r.pattern.FindStringSubmatch(message); match != nil {
			return r.hint(s, operation, match), true
		}
	}

	return "", false
}

// For returns advice for an error of an operation (create, update or delete) on a subject, and how to resume. For an
// error without a row, known is false and the advice is general.
func For(s Subject, operation, message string) (hint string, known bool) {
	advice, known := Advice(s, operation, message)
	if !known {
		advice = fmt.Sprintf("the task's log on %s may say more", s.host())
	}

	next := "`pulumi up --refresh` resumes"
	if operation == "delete" { // after a destroy, an up would recreate everything
		next = "run the same command again, with --refresh"
	}

	return fmt.Sprintf("%s: %s failed. What to do: %s. Then %s.", s, operation, advice, next), known
}
