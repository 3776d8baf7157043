package config

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// agentKeys are the keys of the agent service, which runs if agent.command or agent.preset is set.
// The keys about users, the sandbox and limits also apply to the jobs of the workflow "command".
var agentKeys = []Key{
	{Name: "agent.command", Doc: "The agent's command and its arguments. The prompt replaces {{prompt}} in an " +
		"argument; if no argument has {{prompt}}, the command gets the prompt on standard input. The id of the " +
		"conversation, a UUID, replaces {{session}}. The command is not run by a shell. In a flag or variable the " +
		"command is one text, with quotes around arguments that have spaces. Setting agent.command or " +
		"agent.preset starts the agent service.",
		of: func(c *Config) kind {
			return words{&c.Agent.Command, `arguments, such as ["claude", "-p", "{{prompt}}"]`}
		}},
	{Name: "agent.resume_command", Doc: "The command that continues the conversation {{session}} of an " +
		"interrupted job, with the HOME of the interrupted run. The prompt replaces {{prompt}}; standard input is " +
		"empty. Unless set, agent.command runs again, with BELAY_RESUMED=1.",
		of: func(c *Config) kind {
			return words{&c.Agent.ResumeCommand, `arguments, such as ["my-agent", "--resume", "{{session}}", "go on"]`}
		}},
	{Name: "agent.reply_command", Doc: "The command that continues the conversation {{session}} of an ended job " +
		"with a new message, which replaces {{prompt}}, with the HOME of that job. If no argument has {{prompt}}, the " +
		"command gets the message on standard input. Unless set, agent.command gets the message, and HOME is new.",
		of: func(c *Config) kind {
			return words{&c.Agent.ReplyCommand, `arguments, such as ["my-agent", "--resume", "{{session}}", "{{prompt}}"]`}
		}},
	{Name: "agent.preset", Doc: "An agent whose command is built in: claude, or none.",
		of: func(c *Config) kind { return choice{&c.Agent.Preset, []string{noPreset, "claude"}} }},
	{Name: "agent.permissions", Doc: "The actions that the agent of a preset may take without asking a person: " +
		"all, so that only the sandbox of its job restricts the agent; edits, which denies the agent the shell; " +
		"or auto, which means all for a job that cannot write outside its workspace, and edits for any other job.",
		of: func(c *Config) kind { return choice{&c.Agent.Permissions, []string{"auto", "all", "edits"}} }},
	{Name: "agent.output", Doc: "The format of the agent's standard output: plain, if the output is the answer " +
		"itself; stream-json; or auto, which decides by the first line.",
		of: func(c *Config) kind { return choice{&c.Agent.Output, []string{"auto", "plain", "stream-json"}} }},
	{Name: "agent.repo", Doc: "The repository, a path or URL, of which each job gets a clone of its own; unless " +
		"set, jobs get an empty directory. A credential in the URL is used for this repository alone and shown " +
		"nowhere.",
		of: func(c *Config) kind { return repository{&c.Agent} }},
	{Name: "agent.repos", Doc: "The repositories that callers may name for agents and commands, in addition to " +
		"agent.repo. A URL that ends with *, after a complete host name, allows all repositories whose URLs begin " +
		"with the part before the *. Unless set, callers may name any public repository over https; paths, ssh " +
		"addresses, and repositories that need credentials must be listed here.",
		of: func(c *Config) kind { return repositories{&c.Agent} }},
	{Name: "agent.git_credentials", Doc: "The file with the credentials for repositories, one line like " +
		"https://USER:PASSWORD@HOST/PATH for each, the format of git's credential store. Belay reads the file for " +
		"each use. If several lines match a repository, Belay uses the line with the longest path.",
		of: func(c *Config) kind {
			return text{&c.Agent.GitCredentials, "a file, such as /etc/belay/git-credentials"}
		}},
	{Name: "agent.push", Doc: "Allow callers to let Belay push the work of their agents to a branch. Agents " +
		"themselves get no credential.",
		of: func(c *Config) kind { return boolean{&c.Agent.Push} }},
	{Name: "agent.push_branches", Doc: "The branches to which callers may let Belay push. A name that ends with * " +
		"stands for all names that begin with the part before the *.",
		of: func(c *Config) kind { return branches{&c.Agent.PushBranches} }},
	{Name: "agent.push_credentials", Doc: "The file with the credentials for pushes over https, in the format of " +
		"agent.git_credentials. Belay uses the credentials of agent.git_credentials for fetches only, so these need no " +
		"right to write. Over ssh, Belay pushes with the keys of its own user.",
		of: func(c *Config) kind {
			return text{&c.Agent.PushCredentials, "a file, such as /etc/belay/push-credentials"}
		}},
	{Name: "agent.push_open", Doc: "The command that runs after each push, such as a command that opens a pull " +
		"request. Belay takes the first line of its output that is an address as the address of the result. The " +
		"placeholders {{branch}}, {{base}}, {{title}}, {{repo}}, {{job}} and {{commit}} are replaced in its arguments. " +
		"The command runs as Belay's own user, outside of any sandbox and without a shell, for at most two minutes.",
		of: func(c *Config) kind {
			return words{&c.Agent.PushOpen, `arguments, such as ["open-pull-request", "{{repo}}", "{{branch}}"]`}
		}},
	{Name: "agent.push_env", Doc: "Names of environment variables that only the command of agent.push_open gets, as " +
		"agent.env names variables for agents.",
		of: func(c *Config) kind { return list{&c.Agent.PushEnv, "names, such as GH_TOKEN"} }},
	{Name: "agent.prepare_timeout", Doc: "How long Belay may take to make a job's workspace, fetching included.",
		of: func(c *Config) kind { return duration{&c.Agent.Prepare, 10 * time.Millisecond, maxDuration} }},
	{Name: "agent.env", Doc: "Names of environment variables that agents get, and that submitted commands may " +
		"request. If the variable NAME_FILE contains the path of a file, Belay reads the value of NAME from that file " +
		"for each job, and removes the value from the job's output.",
		of: func(c *Config) kind { return list{&c.Agent.Env, "names, such as ANTHROPIC_API_KEY"} }},
	{Name: "agent.timeout", Doc: "How long the agent may run on a job, counted from the start of the agent, not " +
		"from the submission of the job.",
		of: func(c *Config) kind { return duration{&c.Agent.Timeout, 10 * time.Millisecond, maxDuration} }},
	{Name: "agent.grace", Doc: "How long the agent may take to end after SIGTERM.",
		of: func(c *Config) kind { return duration{&c.Agent.Grace, 10 * time.Millisecond, time.Hour} }},
	{Name: "agent.chat_timeout", Doc: "How long a chat completion may take, including its wait for a slot.",
		of: func(c *Config) kind { return duration{&c.Agent.ChatTimeout, 10 * time.Millisecond, maxDuration} }},
	{Name: "agent.max_concurrency", Doc: "How many jobs run at the same time; further jobs wait in the order of " +
		"their submission. The variable MAX_CONCURRENCY sets this key too.", also: "MAX_CONCURRENCY",
		of: func(c *Config) kind { return number{&c.Agent.Concurrency, 1, 10_000} }},
	{Name: "agent.max_queue_depth", Doc: "The largest number of running and waiting jobs together; further " +
		"jobs are refused. The variable MAX_QUEUE_DEPTH sets this key too.", also: "MAX_QUEUE_DEPTH",
		of: func(c *Config) kind { return number{&c.Agent.QueueDepth, 1, 100_000} }},
	{Name: "agent.job_ttl", Doc: "For how long after its end a job is available at /jobs; 0 means as long as " +
		"its execution is kept (see retention). The variable JOB_TTL_SECONDS sets this key too.",
		also: "JOB_TTL_SECONDS",
		of:   func(c *Config) kind { return duration{&c.Agent.JobTTL, 0, maxDuration} }},
	{Name: "agent.fetch_debounce", Doc: "A remote repository that was fetched within this time is not fetched " +
		"again for the next job. The variable FETCH_DEBOUNCE_SECONDS sets this key too.",
		also: "FETCH_DEBOUNCE_SECONDS",
		of:   func(c *Config) kind { return duration{&c.Agent.FetchDebounce, 0, maxDuration} }},
	{Name: "agent.workspace_dir", Doc: "The directory of the clones and workspaces of all jobs; unless set, the " +
		"subdirectory workspaces of the data directory. The variable WORKSPACE_DIR sets this key too.",
		also: "WORKSPACE_DIR",
		of:   func(c *Config) kind { return text{&c.Agent.WorkspaceDir, "a directory, such as /workspace"} }},
	{Name: "agent.max_attempts", Doc: "How many attempts a job has in all, if attempts fail or time out.",
		of: func(c *Config) kind { return number{&c.Agent.Attempts, 1, 100} }},
	{Name: "agent.dead_letters", Doc: "Keep a dead letter for each job that failed for good.",
		of: func(c *Config) kind { return boolean{&c.Agent.DeadLetters} }},
	{Name: "agent.on_lost", Doc: "The policy for a job whose server or worker crashes: requeue lets another " +
		"worker continue the job, fail ends the job.",
		of: func(c *Config) kind { return choice{&c.Agent.OnLost, []string{"requeue", "fail"}} }},
	{Name: "agent.local", Doc: "Run agents in belay serve itself; with false, only belay worker runs agents.",
		of: func(c *Config) kind { return boolean{&c.Agent.Local} }},
	{Name: "agent.save_every", Doc: "How often the changes that an agent has made so far are saved with its " +
		"execution, so that another machine can continue with these changes; 0 saves the changes only at the end.",
		of: func(c *Config) kind { return duration{&c.Agent.Save, 0, maxDuration} }},
	{Name: "agent.prices", Doc: "Prices of models, for agents that end before they report their cost: " +
		"MODEL:INPUT:OUTPUT or MODEL:INPUT:OUTPUT:CACHE_READ:CACHE_WRITE, in US dollars per million tokens. MODEL is " +
		"the beginning of the name of a model, or *; the longest counts. Unless set, the money of such " +
		"agents is unknown.",
		of: func(c *Config) kind { return list{&c.Agent.Prices, "prices, such as claude-sonnet:3:15:0.3:3.75"} }},
	{Name: "agent.max_cost_tokens", Doc: "How many tokens a job may use over all its runs; 0 for no limit. A job " +
		"that uses more ends with an error, and its changes are kept. A request can only lower the limit.",
		of: func(c *Config) kind { return number{&c.Agent.MaxTokens, 0, 1_000_000_000_000} }},
	{Name: "agent.max_cost_usd", Doc: "How many US dollars a job may cost over all its runs, as " +
		"agent.max_cost_tokens; " +
		"0 for no limit. Before the agent reports its cost, the limit counts only with agent.prices.",
		of: func(c *Config) kind { return number{&c.Agent.MaxUSD, 0, 1_000_000} }},
	{Name: "agent.keep_home", Doc: "Save HOME with the work of an interrupted job, so that the next attempt has " +
		"the agent's own notes and conversations; directories that are known to be caches are not saved.",
		of: func(c *Config) kind { return boolean{&c.Agent.KeepHome} }},
	{Name: "agent.users", Doc: "The system users of jobs, one for each job: FIRST-LAST, a range of user ids " +
		"that nothing else uses; none, so that jobs run as the user of the server; or auto, which means a range " +
		"that Belay chooses if the server runs as root, and none otherwise.",
		of: func(c *Config) kind { return users{&c.Agent.Users} }},
	{Name: "agent.seal", Doc: "Make all files outside of its workspace read-only for a job: by mounts if Belay " +
		"runs as root or the machine allows user namespaces, otherwise by Landlock if the kernel has it.",
		of: func(c *Config) kind { return boolean{&c.Agent.Seal} }},
	{Name: "agent.git_crypt_key", Doc: "The file with the git-crypt key that unlocks checkouts.",
		of: func(c *Config) kind { return text{&c.Agent.CryptKey, "a file, such as /etc/belay/git-crypt.key"} }},
	{Name: "agent.max_processes", Doc: "How many processes and threads a job may have; 0 for no limit.",
		of: func(c *Config) kind { return number{&c.Agent.Processes, 0, 1_000_000} }},
	{Name: "agent.max_cpu", Doc: "How many cores a job may use; 0 for no limit.",
		of: func(c *Config) kind { return number{&c.Agent.CPU, 0, 10_000} }},
	{Name: "agent.max_memory", Doc: "How much memory a job may use; 0B for no limit.",
		of: func(c *Config) kind { return size{&c.Agent.Memory, 0, 1 << 50} }},
	{Name: "agent.max_disk", Doc: "How much disk space a job may use; 0B for no limit.",
		of: func(c *Config) kind { return size{&c.Agent.Disk, 0, 1 << 50} }},
	{Name: "agent.max_files", Doc: "How many files and directories a job may have on disk; 0 for no limit.",
		of: func(c *Config) kind { return number{&c.Agent.Files, 0, 1_000_000_000} }},
	{Name: "agent.hidden", Doc: "Paths that are hidden from jobs, in addition to the data directory, the " +
		"configuration and its secrets, the sockets of container engines, and, if jobs run as the user of the server, the home " +
		"directory and /run.",
		of: func(c *Config) kind { return paths{&c.Agent.Hidden} }},
	{Name: "agent.readable", Doc: "Exceptions to agent.hidden: paths that jobs may read although Belay hides " +
		"the directory above them, such as a toolchain in the home directory or a socket in /run. Jobs can always " +
		"read the directories of PATH and of the agent's command.",
		of: func(c *Config) kind { return paths{&c.Agent.Readable} }},
	{Name: "agent.egress", Doc: "The hosts that jobs may reach over the network: names like api.example.org, " +
		"*.example.org and git.example.org:443, or addresses; public for all public hosts; none for no network. Unless " +
		"set, jobs can reach " +
		"everything that the machine can reach.",
		of: func(c *Config) kind { return places{&c.Agent.Egress} }},
}

// branches is the kind of a value that is a list of names of branches, which may end with *.
type branches struct{ to *[]string }

func (k branches) set(s string) bool {
	var all []string
	for item := range strings.SplitSeq(s, ",") {
		item = strings.TrimSpace(item)
		if item == "" || strings.ContainsAny(item, " \t\r\n\x00~^:?[\\") || strings.HasPrefix(item, "-") ||
			strings.Contains(strings.TrimSuffix(item, "*"), "*") {
			return false
		}
		all = append(all, item)
	}
	*k.to = all
	return true
}
func (branches) want() string   { return "names of branches, such as belay/*" }
func (k branches) show() string { return strings.Join(*k.to, ",") }
func (branches) word() string   { return "list" }
func (branches) tags() []string { return []string{"!!seq"} }

// users is the kind of a value that is a range of user ids, or one of the words auto and none.
type users struct{ to *string }

func (k users) set(s string) bool {
	first, last, ok := strings.Cut(s, "-")
	from, err := strconv.ParseUint(first, 10, 31)
	to, err2 := strconv.ParseUint(last, 10, 31)
	if s != "auto" && s != "none" && !(ok && err == nil && err2 == nil && from >= 1000 && from <= to) {
		return false
	}
	*k.to = s
	return true
}
func (users) want() string   { return "auto, none, or a range such as 70000-70063" }
func (k users) show() string { return *k.to }
func (users) word() string   { return "text" }
func (users) tags() []string { return []string{"!!str"} }

// wantsAgents reports whether variables or flags set agent.command or agent.preset.
func wantsAgents(env []setting, flags map[string]string) bool {
	names := []string{"agent.command", "agent.preset"}
	for _, name := range names {
		if _, ok := flags[name]; ok {
			return true
		}
	}
	return slices.ContainsFunc(env, func(v setting) bool { return slices.Contains(names, v.key) })
}
