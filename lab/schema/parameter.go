package schema

// parameters are the rules of calls' parameters that mean the same wherever they occur.
var parameters = mustParse(map[string]string{ //nolint:gosec // names of parameters, no credentials
	"allow-move current delete destroy-unreferenced-disks download enabled errors forceStop full ha-managed keepActive live-migration-capable": "bool",
	"append":                              "bool +privs",
	"archive filename":                    "<=255",
	"background_delay delay":              "int 1..30",
	"bwlimit limit start timeout":         "int 0..",
	"check-node migratedfrom node target": "@pve-node",
	"checksum":                            "+checksum-algorithm",
	"checksum-algorithm":                  "=md5,sha1,sha224,sha256,sha384,sha512 +checksum",
	"comment force-cpu otp password path tfa-challenge typefilter upid userfilter volume": "string",
	"compression":                    "string",
	"confirmation-password":          ">=5 <=64",
	"content":                        "=iso,vztmpl,import @pve-storage-content",
	"description":                    "<=4096",
	"digest target-digest":           "<=40",
	"disk":                           "=drives",
	"email":                          "<=254 @email-opt",
	"enable privsep propagate":       "bool",
	"expire":                         "int 0..",
	"firstname lastname":             "<=1024",
	"force":                          "bool +delete",
	"format":                         "=raw,qcow2,vmdk",
	"groupid":                        "@pve-groupid",
	"groups":                         "@pve-groupid-list",
	"id":                             "@pve-configid",
	"idlist revert":                  "@pve-configid-list",
	"import-working-storage storage": "@pve-storage-id",
	"keys":                           "~[0-9a-zA-Z!=]{0,4096}",
	"live-restore mdev new-format online overrule-shutdown purge skiplock verbose verify-certificates with-conntrack-state with-local-disks": "bool",
	"machine":                "{machine}",
	"map":                    "list {pci-map}",
	"migration_network":      "@CIDR",
	"migration_type":         "=secure,insecure",
	"name":                   "@dns-name",
	"nets-host-mtu":          `~net\d+=\d+(,net\d+=\d+)*`,
	"newid target-vmid vmid": "int 100..999999999 @pve-vmid",
	"pci-class-blacklist":    "@string-list",
	"pool poolid":            "@pve-poolid",
	"privs":                  "@pve-priv-list",
	"realm":                  "<=32 @pve-realm",
	"roleid":                 "@pve-roleid",
	"roles":                  "@pve-roleid-list",
	"since until":            "int",
	"size":                   `~\+?\d+(\.\d+)?[KMGT]?`,
	"snapname snapshot":      "<=40 @pve-configid",
	"source":                 "=archive,active,all",
	"stateuri":               "<=128",
	"statusfilter":           "@pve-task-status-type-list",
	"target-disk":            "=disks",
	"targetstorage":          "@storage-pair-list",
	"tmpfilename":            "~/var/tmp/pveupload-[0-9a-f]+",
	"tokenid":                `~(?:[A-Za-z][A-Za-z0-9\.\-_]+)`,
	"tokens":                 "@pve-tokenid-list",
	"type":                   "=vm,storage,node,sdn",
	"unique":                 "bool +archive",
	"url":                    "~https?://.*",
	"userid":                 "<=64 @pve-userid",
	"username":               "<=64",
	"users":                  "@pve-userid-list",
	"vms":                    "@pve-vmid-list",
})

// ofCalls are the rules of parameters that mean something else in these calls.
var ofCalls = parseTable(map[string]string{ //nolint:gosec // names of parameters, no credentials
	"POST /access/ticket path":                              "<=64 +privs",
	"POST /access/ticket privs":                             "<=64 @pve-priv-list +path",
	"POST /access/users comment":                            "<=2048",
	"POST /access/users password":                           ">=8 <=64",
	"PUT /access/users/{userid} append":                     "bool +groups",
	"PUT /access/users/{userid} comment":                    "<=2048",
	"PUT /access/users/{userid}/token/{tokenid} delete":     "@pve-configid-list",
	"PUT /access/password password":                         ">=8 <=64",
	"GET /access/permissions userid":                        `~(?:^(?:[^\s:/]+)\@(?:[A-Za-z][A-Za-z0-9\.\-_]+)(?:!(?:[A-Za-z][A-Za-z0-9\.\-_]+))?$)`,
	"GET /cluster/ha/resources type":                        "=ct,vm",
	"GET /nodes/{node}/network type":                        "=bridge,bond,eth,alias,vlan,fabric,OVSBridge,OVSBond,OVSPort,OVSIntPort,vnet,any_bridge,any_local_bridge,include_sdn",
	"GET /pools type":                                       "=qemu,lxc,storage +poolid",
	"GET /pools/{poolid} type":                              "=qemu,lxc,storage",
	"GET /storage type":                                     "=btrfs,cephfs,cifs,dir,esxi,iscsi,iscsidirect,lvm,lvmthin,nfs,pbs,rbd,zfs,zfspool",
	"POST /nodes/{node}/status command":                     "=reboot,shutdown",
	"POST /nodes/{node}/qemu force":                         "bool +archive",
	"PUT /nodes/{node}/qemu/{vmid}/unlink force":            "bool",
	"POST /nodes/{node}/qemu/{vmid}/migrate force":          "bool",
	"POST /nodes/{node}/qemu start":                         "bool",
	"PUT /pools storage":                                    "@pve-storage-id-list",
	"PUT /pools/{poolid} storage":                           "@pve-storage-id-list",
	"PUT /nodes/{node}/qemu/{vmid}/config delete":           "@pve-configid-list",
	"POST /nodes/{node}/qemu/{vmid}/config delete":          "@pve-configid-list",
	"PUT /cluster/mapping/pci/{id} delete":                  "<=4096 @pve-configid-list",
	"PUT /cluster/mapping/pci/{id} digest":                  "<=64",
	"POST /nodes/{node}/qemu/{vmid}/clone description":      "string",
	"GET /nodes/{node}/storage format":                      "bool",
	"POST /nodes/{node}/qemu/{vmid}/move_disk disk":         "=disks",
	"GET /nodes/{node}/storage content":                     "@pve-storage-content-list",
	"GET /nodes/{node}/storage/{storage}/content content":   "@pve-storage-content",
	"POST /nodes/{node}/storage/{storage}/content filename": "string",
	"POST /nodes/{node}/storage/{storage}/content format":   "=raw,qcow2,subvol,vmdk +size",
	"POST /nodes/{node}/storage/{storage}/content size":     `~\d+[MG]?`,
})

func parseTable(table map[string]string) map[string]Rule {
	rules := map[string]Rule{}
	for call, text := range table {
		rules[call] = mustRule(call, text)
	}

	return rules
}

// Parameter returns the rule of a call's parameter; path is PVE's own template of it, such as
// /nodes/{node}/qemu/{vmid}/clone.
func Parameter(method, path, name string) (Rule, bool) {
	if r, ok := ofCalls[method+" "+path+" "+name]; ok {
		return r, true
	}

	r, ok := parameters[name]

	return r, ok
}
