package cluster

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/user"
	"regexp"
	"strconv"
	"sync"
	"syscall"
)

// holderIdentity describes this process to people, and to other processes of this computer: ann@desk (process 7 of
// 5b2c81d09e41) upgrades Talos.
func holderIdentity(purpose string) string {
	name := fmt.Sprintf("uid %d", os.Getuid())
	if u, err := user.Current(); err == nil {
		name = u.Username
	}

	process := strconv.Itoa(os.Getpid())
	if system := thisSystem(); system != "" {
		process += " of " + system
	}

	return fmt.Sprintf("%s@%s (process %s) %s", name, hostName(), process, purpose)
}

func hostName() string {
	host, _ := os.Hostname()

	return cmp.Or(host, "unknown")
}

// thisSystem identifies what a process id belongs to: the boot of the kernel, and the namespace of processes in it.
// Host names do not: containers and runners share them. Empty = unknown, as on systems without /proc.
var thisSystem = sync.OnceValue(func() string { //nolint:gochecknoglobals // read once
	boot, bootErr := os.ReadFile("/proc/sys/kernel/random/boot_id")
	namespace, namespaceErr := os.Readlink("/proc/self/ns/pid")

	if errors.Join(bootErr, namespaceErr) != nil {
		return ""
	}

	sum := sha256.Sum256(append(boot, namespace...))

	return hex.EncodeToString(sum[:6])
})

// holder is the process in a lease's identity.
type holder struct {
	host, system string // system is empty for holders that do not know it
	pid          int
}

var holderFormat = regexp.MustCompile(`@(\S+) \(process (\d+)(?: of ([0-9a-f]+))?\) `)

func parseHolder(identity string) (h holder, ok bool) {
	parts := holderFormat.FindStringSubmatch(identity)
	if parts == nil {
		return h, false
	}

	pid, err := strconv.Atoi(parts[2])

	return holder{host: parts[1], system: parts[3], pid: pid}, err == nil
}

// isOfThisComputer reports whether the holder of a lease is a process of this computer, dead or alive.
func isOfThisComputer(identity string) bool {
	h, ok := parseHolder(identity)

	return ok && h.system == thisSystem() && (h.system != "" || h.host == hostName())
}

// isDead reports whether the holder of a lease is known to have ended: it was a process of this boot of this computer.
func isDead(identity string) bool {
	h, ok := parseHolder(identity)

	return ok && h.system != "" && h.system == thisSystem() && errors.Is(syscall.Kill(h.pid, 0), syscall.ESRCH)
}
