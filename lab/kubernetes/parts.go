package main

import (
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/etcdutl/v3/etcdutl"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	manager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// part is one of the programs: run runs it with os.Args, and report sets the version that it reports.
type part struct {
	run    func() int
	report func(version string) error
}

var parts = map[string]part{
	"etcd":                    {runEtcd, reportEtcd},
	"etcdutl":                 {runEtcdutl, reportEtcd},
	"kube-apiserver":          {component(apiserver.NewAPIServerCommand), reportKubernetes},
	"kube-controller-manager": {component(manager.NewControllerManagerCommand), reportKubernetes},
	"kube-scheduler": {
		component(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
		reportKubernetes,
	},
	"kubectl": {runKubectl, reportKubernetes},
}

func partNames(separator string) string {
	return strings.Join(slices.Sorted(maps.Keys(parts)), separator)
}

// component runs a server of Kubernetes. It creates the command only now, since that reads the reported version.
func component(command func() *cobra.Command) func() int {
	return func() int { return cli.Run(command()) }
}

func runKubectl() int {
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err) // exits
	}

	return 0
}

func runEtcd() int {
	etcdmain.Main(os.Args) // exits on failure

	return 0
}

func runEtcdutl() int {
	root := &cobra.Command{
		Use: "etcdutl", Short: "An administrative command line tool for etcd's files",
		SilenceUsage: true,
	}
	root.PersistentFlags().StringVarP(&etcdutl.OutputFormat, "write-out", "w", "simple",
		"format of the output: fields, json, protobuf, simple or table")
	root.AddCommand(etcdutl.NewSnapshotCommand(), etcdutl.NewHashKVCommand(), etcdutl.NewVersionCommand())

	return cli.Run(root)
}
