package machine_test

import (
	"fmt"
	"os/exec"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// pod returns a manifest of a pod that runs a shell script.
func pod(name, script, more string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n  containers:\n"+
		"    - name: main\n      image: busybox\n      command: [sh, -c, %q]\n%s---\n", name, script, more)
}

// logs of a running, a completed and a crash-looping container.
func logs(l *lab, k kubectl) {
	k.apply(pod("talks", "echo one; echo two; sleep 1000000", "") +
		pod("fails", "echo trying; exit 3", "") +
		pod("waits", "echo never", "  volumes: [{name: v, configMap: {name: none}}]\n"))

	k.eventually("logs talks", "one\ntwo\n")
	assert.Equal(l.T, "two\n", k.run("logs talks --tail=1"))
	assert.Regexp(l.T, `^20\S+Z one\n`, k.run("logs talks --timestamps"))

	k.eventually("get pod fails", "CrashLoopBackOff")
	assert.Equal(l.T, "trying\n", k.run("logs fails --previous"))
	assert.Contains(l.T, k.run("get pod fails -o jsonpath={.status.containerStatuses[0].lastState.terminated}"),
		`"exitCode":3`)

	k.eventually("describe pod waits", `configmap "none" not found`)

	k.fails("logs waits", "is waiting to start: ContainerCreating")

	k.eventually("-n kube-system logs kube-apiserver-node-11", "Serving securely on")
	assert.Contains(l.T, k.run("describe pod talks"), "Started container main")
}

// commands in a running container, with streams and exit status.
func commands(l *lab, k kubectl) {
	assert.Equal(l.T, "talks\n", k.run("exec talks -- hostname"))

	out, err := k.try("echo $((1+2))\nexit 7\n", "exec -i talks -- sh")
	assert.Equal(l.T, 7, exitCode(err), out)
	assert.Contains(l.T, out, "3\n")

	k.fails("exec talks -- ls", `exec: "ls": executable file not found in $PATH`)

	k.fails("-n kube-system exec kube-apiserver-node-11 -- sh", "is a process of labkube")

	out, err = k.try("echo to $1 from stdin\n", "run asks --image=busybox --rm -i --restart=Never --quiet -- sh")
	require.NoError(l.T, err, out)
	assert.Contains(l.T, out, "from stdin")
}

func exitCode(err error) int {
	if end, ok := err.(*exec.ExitError); ok { //nolint:errorlint // as exec returns it
		return end.ExitCode()
	}

	return 0
}

// jobs complete or fail.
func jobs(l *lab, k kubectl) {
	k.run("create job well --image=busybox -- sh -c true")
	k.run("wait --for=condition=complete job/well --timeout=5m")
	assert.Contains(l.T, k.run("get pod -l job-name=well"), "Completed")

	k.apply(
		"apiVersion: batch/v1\nkind: Job\nmetadata: {name: badly}\nspec:\n  backoffLimit: 0\n  template:\n    spec:\n" +
			"      restartPolicy: Never\n      initContainers: [{name: first, image: busybox, command: [echo, first]}]\n" +
			"      containers: [{name: main, image: busybox, command: [sh, -c, echo bad; exit 4]}]\n",
	)
	k.run("wait --for=condition=failed job/badly --timeout=5m")
	assert.Equal(l.T, "first\n", k.run("logs job/badly -c first"))
	assert.Equal(l.T, "bad\n", k.run("logs job/badly -c main"))

	k.run("create job named --image=example.org/migrate:v1")
	k.run("wait --for=condition=complete job/named --timeout=5m")
	assert.Contains(l.T, k.run("logs job/named"), "the lab does not run example.org/migrate:v1: the container counts as completed")
}

// deletion is graceful: hooks run first, and a shell gets its grace period.
func deletion(l *lab, k kubectl) {
	k.apply(pod("hooked", "sleep 1000000", "      lifecycle: {preStop: {sleep: {seconds: 100000}}}\n"+
		"  terminationGracePeriodSeconds: 1000000\n"))
	k.eventually("get pod hooked", "Running")
	k.run("delete pod hooked --wait=false")
	assert.Contains(l.T, k.run("get pod hooked"), "Terminating")
	assert.Contains(l.T, k.run("describe pod hooked"), "Stopping container main")

	k.run("delete pod hooked --grace-period=1") // a shorter grace cuts the hook
	k.fails("get pod hooked", "not found")
	k.run("delete pod talks fails waits")
}

// gpus: a pod that requests a GPU is allocated one, and NVIDIA's tools show it.
func gpus(l *lab, k kubectl) {
	k.eventually("get node node-22 -o jsonpath={.status.allocatable}", `"nvidia.com/gpu":"8"`)
	k.apply("apiVersion: v1\nkind: Pod\nmetadata: {name: acceptance}\nspec:\n  restartPolicy: Never\n  runtimeClassName: nvidia\n" +
		"  containers: [{name: cuda, image: \"nvcr.io/nvidia/cuda:13.0.1-base-ubuntu24.04\", command: [nvidia-smi, -L], resources: {limits: {nvidia.com/gpu: 1}}}]\n---\n" +
		"apiVersion: v1\nkind: Pod\nmetadata: {name: all}\nspec:\n  restartPolicy: Never\n  runtimeClassName: nvidia\n  nodeName: node-22\n" +
		"  containers: [{name: cuda, image: \"nvcr.io/nvidia/cuda:13.0.1-base-ubuntu24.04\", command: [nvidia-smi, -L]}]\n---\n" +
		"apiVersion: v1\nkind: Pod\nmetadata: {name: plain}\nspec:\n  restartPolicy: Never\n" +
		"  containers: [{name: cuda, image: \"nvcr.io/nvidia/cuda:13.0.1-base-ubuntu24.04\", command: [nvidia-smi, -L], resources: {limits: {nvidia.com/gpu: 1}}}]\n")
	k.eventually("get pod acceptance", "Completed")
	assert.Regexp(
		l.T, `^GPU 0: NVIDIA RTX 4000 SFF Ada Generation \(UUID: GPU-[0-9a-f-]{36}\)\n$`, k.run("logs acceptance"),
	)

	k.eventually("get pod all", "Completed")
	assert.Contains(l.T, k.run("logs all"), "GPU 1: ")

	k.eventually("get pod plain", "StartError")
	assert.Contains(l.T, k.run("describe pod plain"), `exec: "nvidia-smi": executable file not found in $PATH`)
}

// reboots: containers restart with their machine; those that must not restart have failed.
func reboots(l *lab, k kubectl) {
	k.apply(pod("again", "echo started; sleep 1000000000", "  nodeName: node-21\n") +
		pod("once", "sleep 1000000000", "  nodeName: node-21\n  restartPolicy: Never\n"))
	k.eventually("get pod again", "Running")
	k.eventually("get pod once", "Running")

	certificate := l.kubeletCertificate(21)

	l.machines.PowerOff(21)
	l.machines.PowerOn(l.hardware(21))

	k.eventually("get pod again -o jsonpath={.status.containerStatuses[0].restartCount}/{.status.phase}", "1/Running")
	k.eventually(
		"get pod once -o jsonpath={.status.phase}/{.status.containerStatuses[0].state.terminated.exitCode}", "Failed/255",
	)
	k.eventually("logs again", "started")
	assert.Equal(l.T, certificate.SerialNumber, l.kubeletCertificate(21).SerialNumber, "the certificate is on the disk")
}
