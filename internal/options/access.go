package options

func (o *Options) accessFlags() []Flag {
	a := &o.Access
	return grouped("Access",
		word("auth-file", argFile, &a.File, "", "YAML file of tokens, token issuers, client certificates and their roles, read again when it changes; without one everybody may infer").own(),
		word("audit-log", argFile, &a.Audit, "", "File to which changes of the server and refused requests are appended as JSON lines, or stderr").own(),
		onOff("allow-remote-control", &a.RemoteControl, no,
			"Without --auth-file: let clients of other machines load and unload models, register shared memory, and change trace and log settings").own(),
	)
}
