package kubeupgrade

import (
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/siderolabs/go-kubernetes/kubernetes/ssa"

	"talos-proxmox/internal/request"
)

// progress turns the messages of Talos' library into lines with the node, the step, the message and the elapsed time.
// The library writes to it.
type progress struct {
	out       io.Writer
	nodes     *strings.Replacer // quoted addresses → names
	started   time.Time
	onMessage func(line string) // called for every message; the watchdog sets it

	mu       sync.Mutex
	step     string
	manifest string
	last     string // line without its time
	lastAt   time.Time
}

// repeatInterval is the time between two equal lines: the library writes them every few seconds.
const repeatInterval = 15 * time.Second

const (
	checksStep    = "checks"
	prePullStep   = "pre-pull"
	manifestsStep = "manifests"
	kubeletStep   = "kubelet"
)

var (
	stepMessage    = regexp.MustCompile(`^updating "?([a-z-]+)"?(?: to version .*)?$`)
	nodeMessage    = regexp.MustCompile(`^[<>] (?:"([^"]+)": )?(.*)$`)
	appliedMessage = regexp.MustCompile(`^(created|configured) (\S+)$`)
)

// actionTexts describe the actions of server-side apply.
var actionTexts = map[string]string{ //nolint:gochecknoglobals // a table
	ssa.CreatedAction.String(): "is created", ssa.ConfiguredAction.String(): "is updated",
}

func newProgress(out io.Writer, nodes []request.Node) *progress {
	var pairs []string
	for _, n := range nodes {
		pairs = append(pairs, strconv.Quote(n.Address.String()), fmt.Sprintf("%q", n.Name))
	}

	return &progress{
		out: out, nodes: strings.NewReplacer(pairs...), started: time.Now(), step: checksStep, onMessage: func(string) {},
	}
}

// Write takes one message of the library, without a line break at its end.
func (p *progress) Write(message []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()

	text := strings.TrimSpace(string(message))
	if text == "" || isDiff(text) {
		return len(message), nil
	}

	p.onMessage(text)

	if node, what, show := p.parse(text); show {
		p.print(node, what)
	}

	return len(message), nil
}

// isDiff reports whether a message is the diff of an object, which must not be shown: it may be a Secret.
func isDiff(text string) bool { return strings.HasPrefix(text, "--- ") || strings.Contains(text, "\n") }

// parse splits a message into node and text, and reports whether to show it.
func (p *progress) parse(text string) (node, what string, show bool) {
	if begins := stepMessage.FindStringSubmatch(text); begins != nil {
		p.step = begins[1]

		return "", "begins", true
	}

	found := nodeMessage.FindStringSubmatch(p.nodes.Replace(text))
	if found == nil {
		return "", text, p.step != checksStep || !strings.HasPrefix(text, "discovered ")
	}

	node, what = found[1], found[2]

	if path, processing := strings.CutPrefix(what, "processing manifest "); processing {
		p.manifest = path

		return "", "", false
	}

	switch p.step {
	case checksStep:
		if strings.HasPrefix(what, "pre-pulling ") {
			p.step = prePullStep
		}
	case manifestsStep:
		what, show = p.parseManifestMessage(what)

		return node, what, show
	}

	return node, what, true
}

// parseManifestMessage returns the text of a message about an object. If the oldest node has Talos 1.12, that is the
// object of the message before; otherwise server-side apply names it.
func (p *progress) parseManifestMessage(what string) (string, bool) {
	switch change := appliedMessage.FindStringSubmatch(what); {
	case strings.HasSuffix(what, "no changes"):
		return "", false
	case what == "applied successfully":
		return p.manifest + " is updated", true
	case change != nil:
		return change[2] + " " + actionTexts[change[1]], true
	default:
		return what, true
	}
}

// print writes a line. It drops a repetition of the last line for a while.
func (p *progress) print(node, what string) {
	line := p.step + ": " + what
	if node != "" {
		line = node + ": " + line
	}

	now := time.Now()
	if line == p.last && now.Sub(p.lastAt) < repeatInterval {
		return
	}

	p.last, p.lastAt = line, now
	// Continue even if no one reads the progress.
	_, _ = fmt.Fprintf(p.out, "%s (%s)\n", line, now.Sub(p.started).Round(time.Second))
}

// note writes a line of the program's own.
func (p *progress) note(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.print("", what)
}

// restart begins another attempt.
func (p *progress) restart() {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.step = checksStep
}

// withNodeNames replaces the addresses of nodes by their names.
func (p *progress) withNodeNames(text string) string { return p.nodes.Replace(text) }
