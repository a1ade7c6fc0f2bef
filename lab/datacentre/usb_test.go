package datacentre_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
)

// openWithUSB has a host with a Zigbee stick and two equal sticks for Z-Wave, and mappings that fit or not.
func openWithUSB(t *testing.T) *datacentre.Datacentre {
	t.Helper()

	o := fastOptions(t)
	o.Hosts = []datacentre.HostOptions{{Name: "pve1", Cores: 8, MemoryMiB: 16384, USB: []datacentre.USBDevice{
		{Port: "1-4", ID: "10c4:ea60"}, {Port: "1-7.1", ID: "0658:0200"}, {Port: "1-7.2", ID: "0658:0200"},
	}}, {Name: "pve2"}, {Name: "pve3"}}
	d := open(t, o)

	for name, entries := range map[string][]string{
		"zigbee":  {"id=10c4:ea60,node=pve1", "id=10c4:ea60,node=pve2"},
		"zwave":   {"id=0658:0200,node=pve1,path=1-7.2"},
		"upper":   {"id=10C4:EA60,node=pve1"},
		"ups":     {"id=051d:0002,node=pve1"},
		"nowhere": {"id=10c4:ea60,node=pve1,path=2-1"},
		"other":   {"id=10c4:ea60,node=pve1,path=1-7.1"},
		"two":     {"id=0658:0200,node=pve1,path=1-7.1", "id=0658:0200,node=pve1,path=1-7.2"},
	} {
		d.Put(datacentre.USBMappings, name, pciMapping(entries...))
	}

	return d
}

func TestUSBDevicesAtStart(t *testing.T) {
	t.Parallel()

	const changed = "USB Mapping invalid (hardware probably changed): "

	for name, test := range map[string]struct {
		usb   string
		ports []string
		exit  string
	}{
		"a mapping":                       {usb: "mapping=zigbee", ports: []string{"1-4"}, exit: "OK"},
		"a mapping of a port":             {usb: "mapping=zwave,usb3=1", ports: []string{"1-7.2"}, exit: "OK"},
		"a device by its id":              {usb: "host=10c4:ea60", ports: []string{"1-4"}, exit: "OK"},
		"a device by its port":            {usb: "1-7.1", ports: []string{"1-7.1"}, exit: "OK"},
		"a device that is not there":      {usb: "host=051d:0002", exit: "OK"},
		"spice":                           {usb: "spice", exit: "OK"},
		"no mapping":                      {usb: "mapping=none", exit: "USB device mapping not found for 'none'"},
		"a mapping of a missing device":   {usb: "mapping=ups", exit: changed + "usb device '051d:0002' not found"},
		"a mapping of an empty port":      {usb: "mapping=nowhere", exit: changed + "usb device '2-1' not found"},
		"a mapping of another device":     {usb: "mapping=other", exit: changed + "'id' does not match for 'other' (0658:0200 != 10c4:ea60)"},
		"an id in capital letters":        {usb: "mapping=upper", exit: changed + "usb device '10C4:EA60' not found"},
		"two devices of a host in it":     {usb: "mapping=two", exit: "More than one USB mapping per host not supported"},
		"a mapping of PCI devices' names": {usb: "mapping=gpu", exit: "USB device mapping not found for 'gpu'"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			d := openWithUSB(t)
			d.Put(datacentre.PCIMappings, "gpu", pciMapping(wholeDevice))
			requireOK(t, d)(d.CreateVM(root, "pve1", 100, basicVM(datacentre.Config{"usb0": test.usb})))

			upid, err := d.Start(root, "pve1", 100)
			assert.Equal(t, test.exit, exitStatus(t, d, upid, err))
			assert.Equal(t, test.ports, usbPorts(d))
		})
	}
}

// usbPorts returns the ports of the USB devices of VM 100.
func usbPorts(d *datacentre.Datacentre) (ports []string) {
	vm, _ := d.VM(100)
	if vm.Hardware == nil {
		return nil
	}

	for _, device := range vm.Hardware.USB {
		ports = append(ports, device.Port)
	}

	return ports
}

func TestUSBDevicesArePluggedIntoRunningMachines(t *testing.T) {
	t.Parallel()

	d := openWithUSB(t)
	do := requireOK(t, d)
	do(d.CreateVM(root, "pve1", 100, basicVM(nil)))
	do(d.Start(root, "pve1", 100))

	require.NoError(t, d.SetConfig(root, "pve1", 100, datacentre.Config{"usb0": "mapping=zigbee", "usb1": "mapping=zwave"}))
	assert.Equal(t, []string{"1-4", "1-7.2"}, usbPorts(d))
	require.NoError(t, d.SetConfig(root, "pve1", 100, datacentre.Config{"delete": "usb0"}))
	assert.Equal(t, []string{"1-7.2"}, usbPorts(d))

	require.EqualError(t, d.SetConfig(root, "pve1", 100, datacentre.Config{"usb0": "mapping=ups"}),
		"Parameter verification failed. map[usb0:hotplug problem - USB Mapping invalid (hardware probably changed): "+
			"usb device '051d:0002' not found]")
}

func TestUSBDevicesOfTokens(t *testing.T) {
	t.Parallel()

	d := openWithAccounts(t, acl("/vms", "user", ann, "PVEVMAdmin"), acl("/mapping/usb/zigbee", "user", ann, "PVEMappingUser"))

	for value, want := range map[string]string{
		"host=10c4:ea60": "only root can set 'usb0' config for real devices",
		"1-4":            "only root can set 'usb0' config for real devices",
		"usb3=1":         "either 'host' or 'mapping' must be set.",
		"mapping=zwave":  "Permission check failed (/mapping/usb/zwave, Mapping.Use)",
	} {
		require.EqualError(t, set(ann, 100, datacentre.Config{"usb0": value})(d), want)
	}

	require.NoError(t, set(ann, 100, datacentre.Config{"usb0": "mapping=zigbee"})(d))
	require.NoError(t, set(ann, 100, datacentre.Config{"usb1": "spice"})(d))
}

func TestMachinesWithUSBDevicesStay(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		usb, target string
		running     bool
		logged      string
	}{
		"by a mapping, running": {
			usb: "mapping=zigbee", target: "pve2", running: true,
			logged: "can't live migrate running VM which uses following mapped devices: usb0:zigbee",
		},
		"by a mapping, off, to a host that is not in it": {
			usb: "mapping=zigbee", target: "pve3", logged: "can't migrate to 'pve3': missing mapped devices usb0",
		},
		"without a mapping": {
			usb: "host=10c4:ea60", target: "pve2", logged: "can't migrate VM which uses local devices: usb0",
		},
		"by a mapping, off": {usb: "mapping=zigbee", target: "pve2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			d := openWithUSB(t)
			do := requireOK(t, d)
			do(d.CreateVM(root, "pve1", 100, basicVM(datacentre.Config{"usb0": test.usb})))

			if test.running {
				do(d.Start(root, "pve1", 100))
			}

			upid, err := d.Migrate(root, "pve1", 100, datacentre.Config{"target": test.target, "online": "1", "with-local-disks": "1"})

			host := test.target
			if test.logged == "" {
				assert.Equal(t, "OK", exitStatus(t, d, upid, err))
			} else {
				assert.Equal(t, "migration aborted", exitStatus(t, d, upid, err))
				assert.Contains(t, d.TaskLog(upid), "ERROR: "+test.logged)

				host = "pve1"
			}

			vm, _ := d.VM(100)
			assert.Equal(t, host, vm.Host)
		})
	}
}
