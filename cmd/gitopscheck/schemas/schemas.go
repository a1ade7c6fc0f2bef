// Package schemas names the modules whose files say what custom resources look like. Nothing of them is compiled into
// anything: gitopscheck reads their definitions where the Go command has put them.
package schemas

import (
	_ "github.com/cert-manager/cert-manager/pkg/apis/certmanager" // deploy/crds
	_ "github.com/cilium/cilium/pkg/k8s/apis/cilium.io"           // pkg/k8s/apis/cilium.io/client/crds
	_ "github.com/controlplaneio-fluxcd/flux-operator/api/v1"     // config/data/flux, config/crd
	_ "sigs.k8s.io/gateway-api/pkg/consts"                        // config/crd
)
