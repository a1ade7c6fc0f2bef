package shell_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestScriptsForRealHosts is what scripts use of bash and of this machine's programs.
func TestScriptsForRealHosts(t *testing.T) {
	t.Parallel()

	h := fast(t)

	for name, test := range map[string]struct {
		script, stdout string
		status         int
	}{
		"here-documents": {
			script: "x=1\ncat >/etc/h <<EOF\na $x\nEOF\ncat <<'EOF' >>/etc/h\nb $x\nEOF\ncat $root/etc/h\n",
			stdout: "a 1\nb $x\n",
		},
		"traps": {
			script: "f=$(mktemp); trap 'rm -f \"$f\"; echo gone' EXIT\n[ -f \"$f\" ] && echo there\nexit 3\n",
			stdout: "there\ngone\n",
			status: 3,
		},
		"atomic replacement": {
			script: "new=$root/etc/.r.new; printf 'one\\n' >\"$new\" && chmod 644 -- \"$new\" && sync -- \"$new\" && mv -f -- \"$new\" $root/etc/r && stat -c %a $root/etc/r\n",
			stdout: "644\n",
		},
		"comparison": {script: "echo a >/etc/c1; echo a >/etc/c2; cmp -s $root/etc/c1 $root/etc/c2 && echo same; echo b >/etc/c2; cmp -s $root/etc/c1 $root/etc/c2 || echo other\n", stdout: "same\nother\n"},
		"editing in place": {
			script: "printf 'a=1\\nb=2\\n' >/etc/e; sed -i 's/^a=.*/a=3/' $root/etc/e; cat /etc/e 2>/dev/null || cat $root/etc/e\n",
			stdout: "a=3\nb=2\n",
		},
		"finding": {
			script: "mkdir -p $root/etc/f/g; : >/etc/f/g/x; find $root/etc/f -type f | sed \"s#$root##\"\n",
			stdout: "/etc/f/g/x\n",
		},
		"arrays and maps": {
			script: "declare -A m=([a]=1); m[b]=2; l=(x y); l+=(z); echo ${#l[@]} ${l[*]} ${!m[@]} ${m[b]}\n",
			stdout: "3 x y z a b 2\n",
		},
		"globs below the root": {script: "mkdir -p $root/etc/g; : >/etc/g/1.conf; : >/etc/g/2.conf; for f in \"$root\"/etc/g/*.conf; do echo ${f##*/}; done\n", stdout: "1.conf\n2.conf\n"},
		"words of a line":      {script: "IFS=' ' read -r -a w <<<'a b  c'; echo ${#w[@]} ${w[2]}; while read -r x; do echo \"<$x>\"; done < <(printf '1\\n2\\n')\n", stdout: "3 c\n<1>\n<2>\n"},
		"pipes that fail": {
			script: "set -o pipefail; if ! false | cat; then echo failed; fi; ( exit 4 ) || echo $?\n", stdout: "failed\n4\n",
		},
		"locks of commands": {script: "flock -w 5 $root/run/lock/s.lock bash -c 'echo \"$0 $1\"' a b\n", stdout: "a b\n"},
		"patterns":          {script: "case 'BOOT_IMAGE=/x root=y' in BOOT_IMAGE=*) echo grub;; esac; [[ 6.17 =~ ^([0-9]+)\\.([0-9]+) ]] && echo ${BASH_REMATCH[2]}; v=a/b; echo ${v//\\//%}\n", stdout: "grub\n17\na%b\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			stdout, stderr, status := h.run(t, "root=$HOST_ROOT\n"+test.script, "")
			assert.Equal(t, test.stdout, stdout, stderr)
			assert.Equal(t, test.status, status)
		})
	}
}
