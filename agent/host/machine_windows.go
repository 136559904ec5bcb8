package host

import "golang.org/x/sys/windows/registry"

// machineID returns the id that Windows gives a machine when it is installed or generalized
// (sysprep), and that Elastic's agents report too. Programs of 32 bits would read another key
// without WOW64_64KEY.
func machineID() string {
	k, err := registry.OpenKey(registry.LOCAL_MACHINE, `SOFTWARE\Microsoft\Cryptography`, registry.QUERY_VALUE|registry.WOW64_64KEY)
	if err != nil {
		return ""
	}
	defer func() { _ = k.Close() }()
	id, _, err := k.GetStringValue("MachineGuid")
	if err != nil {
		return ""
	}
	return id
}
