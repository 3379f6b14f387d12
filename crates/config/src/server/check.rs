//! Checks between the keys of a server's file, in the reference's order and words.
//!
//! `requirement failed: ` in front of a message is what Scala's `require` adds; admin tools show it,
//! our start-up line drops it.

use std::collections::BTreeSet;

use super::ServerConfig;
use crate::error::ConfigError;
use crate::net::{SecurityProtocol, is_valid_host, normalise_listener_name};
use crate::value::{java_trim, split_list};

fn require(satisfied: bool, message: impl FnOnce() -> String) -> Result<(), ConfigError> {
    if satisfied {
        Ok(())
    } else {
        Err(ConfigError::illegal_argument(format!("requirement failed: {}", message())))
    }
}

/// The number of the last codec, zstd.
const MAX_COMPRESSION_CODEC: i64 = 4;

/// Assignors by name; classes of the JVM cannot be loaded here, except those that are built in under both names.
const BUILT_IN_ASSIGNORS: &[(&str, &[&str])] = &[
    (
        "group.consumer.assignors",
        &[
            "uniform",
            "range",
            "org.apache.kafka.coordinator.group.assignor.UniformAssignor",
            "org.apache.kafka.coordinator.group.assignor.RangeAssignor",
        ],
    ),
    ("group.share.assignors", &["simple", "org.apache.kafka.coordinator.group.assignor.SimpleAssignor"]),
    (
        "group.streams.assignors",
        &["sticky", "org.apache.kafka.coordinator.group.streams.assignor.StickyTaskAssignor"],
    ),
];

/// `(greater, lesser)`: the first must be at least the second.
const AT_LEAST: &[(&str, &str)] = &[
    ("group.consumer.max.heartbeat.interval.ms", "group.consumer.min.heartbeat.interval.ms"),
    ("group.consumer.heartbeat.interval.ms", "group.consumer.min.heartbeat.interval.ms"),
    ("group.consumer.max.session.timeout.ms", "group.consumer.min.session.timeout.ms"),
    ("group.consumer.session.timeout.ms", "group.consumer.min.session.timeout.ms"),
    ("group.consumer.max.assignment.interval.ms", "group.consumer.min.assignment.interval.ms"),
    ("group.consumer.assignment.interval.ms", "group.consumer.min.assignment.interval.ms"),
    ("group.share.max.heartbeat.interval.ms", "group.share.min.heartbeat.interval.ms"),
    ("group.share.heartbeat.interval.ms", "group.share.min.heartbeat.interval.ms"),
    ("group.share.max.session.timeout.ms", "group.share.min.session.timeout.ms"),
    ("group.share.session.timeout.ms", "group.share.min.session.timeout.ms"),
    ("group.share.max.assignment.interval.ms", "group.share.min.assignment.interval.ms"),
    ("group.share.assignment.interval.ms", "group.share.min.assignment.interval.ms"),
    ("group.streams.max.heartbeat.interval.ms", "group.streams.min.heartbeat.interval.ms"),
    ("group.streams.heartbeat.interval.ms", "group.streams.min.heartbeat.interval.ms"),
    ("group.streams.max.session.timeout.ms", "group.streams.min.session.timeout.ms"),
    ("group.streams.session.timeout.ms", "group.streams.min.session.timeout.ms"),
    ("group.streams.max.assignment.interval.ms", "group.streams.min.assignment.interval.ms"),
    ("group.streams.assignment.interval.ms", "group.streams.min.assignment.interval.ms"),
    ("group.streams.task.offset.interval.ms", "group.streams.min.task.offset.interval.ms"),
    ("group.share.max.delivery.count.limit", "group.share.delivery.count.limit"),
    ("group.share.delivery.count.limit", "group.share.min.delivery.count.limit"),
    ("group.share.max.partition.max.record.locks", "group.share.partition.max.record.locks"),
    ("group.share.partition.max.record.locks", "group.share.min.partition.max.record.locks"),
    ("group.share.record.lock.duration.ms", "group.share.min.record.lock.duration.ms"),
    ("group.share.max.record.lock.duration.ms", "group.share.record.lock.duration.ms"),
    ("group.share.max.share.sessions", "group.share.max.size"),
];

/// `(lesser, greater)`: the first must be at most the second.
const AT_MOST: &[(&str, &str)] = &[
    ("group.consumer.heartbeat.interval.ms", "group.consumer.max.heartbeat.interval.ms"),
    ("group.consumer.session.timeout.ms", "group.consumer.max.session.timeout.ms"),
    ("group.consumer.assignment.interval.ms", "group.consumer.max.assignment.interval.ms"),
    ("group.share.heartbeat.interval.ms", "group.share.max.heartbeat.interval.ms"),
    ("group.share.session.timeout.ms", "group.share.max.session.timeout.ms"),
    ("group.share.assignment.interval.ms", "group.share.max.assignment.interval.ms"),
    ("group.streams.heartbeat.interval.ms", "group.streams.max.heartbeat.interval.ms"),
    ("group.streams.session.timeout.ms", "group.streams.max.session.timeout.ms"),
    ("group.streams.assignment.interval.ms", "group.streams.max.assignment.interval.ms"),
    ("group.streams.num.standby.replicas", "group.streams.max.standby.replicas"),
    ("group.streams.num.warmup.replicas", "group.streams.max.warmup.replicas"),
];

/// `(lesser, greater)`: the first must be less than the second.
const LESS_THAN: &[(&str, &str)] = &[
    ("group.consumer.heartbeat.interval.ms", "group.consumer.session.timeout.ms"),
    ("group.share.heartbeat.interval.ms", "group.share.session.timeout.ms"),
    ("group.streams.heartbeat.interval.ms", "group.streams.session.timeout.ms"),
];

impl ServerConfig {
    /// The bounds that the group coordinator's and share groups' keys put on each other.
    pub(super) fn check_group_settings(&self) -> Result<(), ConfigError> {
        let refuse = |message: String| Err(ConfigError::illegal_argument(message));
        for (key, built_in) in BUILT_IN_ASSIGNORS {
            if let Some(unknown) = self.list(key).iter().find(|name| !built_in.contains(&name.as_str())) {
                return Err(ConfigError::invalid_value(key, unknown, "Class cannot be found"));
            }
        }
        for key in ["offsets.topic.compression.codec", "share.coordinator.state.topic.compression.codec"] {
            let codec = self.int(key);
            if !(0..=MAX_COMPRESSION_CODEC).contains(&codec) {
                return refuse(format!("Unknown compression type id: {codec}"));
            }
        }
        for (greater, lesser) in AT_LEAST {
            if self.int(greater) < self.int(lesser) {
                return refuse(format!("{greater} must be greater than or equal to {lesser}"));
            }
        }
        for (lesser, greater) in AT_MOST {
            if self.int(lesser) > self.int(greater) {
                return refuse(format!("{lesser} must be less than or equal to {greater}"));
            }
        }
        for (lesser, greater) in LESS_THAN {
            if self.int(lesser) >= self.int(greater) {
                return refuse(format!("{lesser} must be less than {greater}"));
            }
        }
        let assignors = self.list("group.share.assignors").len();
        if assignors != 1 {
            return refuse(format!(
                "group.share.assignors must contain exactly one assignor, but found {assignors}"
            ));
        }
        let raw_tags = self.originals.get("group.streams.rack.aware.assignment.tags");
        let tags = raw_tags.map(|text| split_list(java_trim(text))).unwrap_or_default();
        if (1..tags.len()).any(|i| tags[..i].contains(&tags[i])) {
            return refuse(
                "group.streams.rack.aware.assignment.tags must not contain duplicate tag keys.".into(),
            );
        }
        if !self.group_coordinator_rebalance_protocols.iter().any(|p| p.eq_ignore_ascii_case("classic")) {
            return Err(ConfigError::config("Disabling the 'classic' protocol is not supported."));
        }
        Ok(())
    }

    /// The rest, after everything derived is in place.
    pub(super) fn check(&mut self) -> Result<(), ConfigError> {
        if self.node_id != i32::try_from(self.int("broker.id")).unwrap_or(-1) {
            return Err(ConfigError::config(
                "`node.id` and `broker.id` must be set to the same value. `broker.id` is deprecated, please use \
                 `node.id` instead.",
            ));
        }
        self.check_log_and_replication()?;
        self.check_roles()?;
        self.check_listeners()?;
        self.check_connections()
    }

    fn check_log_and_replication(&mut self) -> Result<(), ConfigError> {
        require(self.log_roll_time_ms() >= 1, || "log.roll.ms must be greater than or equal to 1".into())?;
        require(self.log_roll_jitter_time_ms() >= 0, || {
            "log.roll.jitter.ms must be greater than or equal to 0".into()
        })?;
        let retention = self.log_retention_time_ms();
        require(retention >= 1 || retention == -1, || {
            "log.retention.ms must be unlimited (-1) or, greater than or equal to 1".into()
        })?;
        require(!self.log_dirs().is_empty(), || {
            "At least one log directory must be defined via log.dirs or log.dir.".into()
        })?;
        // The reference divides by zero here.
        let threads = i64::from(self.log_cleaner_threads);
        require(threads >= 1, || "log.cleaner.threads must be greater than or equal to 1".into())?;
        require(self.log_cleaner_dedupe_buffer_size / threads > 1024 * 1024, || {
            "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.".into()
        })?;
        require(self.replica_fetch_wait_max_ms <= self.replica_socket_timeout_ms, || {
            "replica.socket.timeout.ms should always be at least replica.fetch.wait.max.ms to prevent unnecessary \
             socket timeouts"
                .into()
        })?;
        require(i64::from(self.replica_fetch_wait_max_ms) <= self.replica_lag_time_max_ms, || {
            "replica.fetch.wait.max.ms should always be less than or equal to replica.lag.time.max.ms to prevent \
             frequent changes in ISR"
                .into()
        })?;
        let (interval, timeout) = (self.broker_heartbeat_interval_ms, self.broker_session_timeout_ms);
        if i64::from(interval) * 2 > i64::from(timeout) {
            // The reference only complains.
            self.messages.push(format!(
                "broker.heartbeat.interval.ms ({interval} ms) must be less than or equal to half of the \
                 broker.session.timeout.ms ({timeout} ms). The broker.session.timeout.ms is configured on controller. \
                 The broker.heartbeat.interval.ms is configured on broker. If a broker doesn't send heartbeat request \
                 within broker.session.timeout.ms, it loses broker lease. Please increase broker.session.timeout.ms or \
                 decrease broker.heartbeat.interval.ms."
            ));
        }
        Ok(())
    }

    fn check_roles(&mut self) -> Result<(), ConfigError> {
        if self.quorum_voters.is_empty() && self.list("controller.quorum.bootstrap.servers").is_empty() {
            return Err(ConfigError::config(
                "If using process.roles, either controller.quorum.bootstrap.servers must contain the set of bootstrap \
                 controllers or controller.quorum.voters must contain a parseable set of controllers.",
            ));
        }
        if !self.is_controller() {
            return self.check_broker_only();
        }
        if !self.is_broker() {
            require(self.advertised_controller_listeners.len() == self.listeners.len(), || {
                "The listeners config must only contain KRaft controller listeners from controller.listener.names when \
                 process.roles=controller"
                    .into()
            })?;
            if self.inter_broker_listener_name_text.is_some() {
                let (name, _) = self.derive_inter_broker_listener()?;
                require(!self.controller_listener_names.contains(&name), || {
                    "controller.listener.names must not contain an explicitly set inter.broker.listener.name \
                     configuration value when process.roles=controller'"
                        .into()
                })?;
            }
        }
        let (id, voters) = (self.node_id, &self.quorum_voters);
        require(voters.is_empty() || voters.contains_key(&id), || {
            format!(
                "If process.roles contains the 'controller' role, the node id {id} must be included in the set of \
                 voters controller.quorum.voters={}",
                self.shown_voter_ids()
            )
        })?;
        require(!self.advertised_controller_listeners.is_empty(), || {
            "controller.listener.names must contain at least one value appearing in the 'listeners' configuration when \
             running the KRaft controller role"
                .into()
        })?;
        let known = |name: &String| self.listeners.iter().any(|e| e.listener == *name);
        require(self.controller_listener_names.iter().all(known), || {
            "controller.listener.names must only contain values appearing in the 'listeners' configuration when \
             running the KRaft controller role"
                .into()
        })
    }

    fn check_broker_only(&mut self) -> Result<(), ConfigError> {
        let id = self.node_id;
        require(!self.quorum_voters.contains_key(&id), || {
            format!(
                "If process.roles contains just the 'broker' role, the node id {id} must not be included in the set of \
                 voters controller.quorum.voters={}",
                self.shown_voter_ids()
            )
        })?;
        require(self.controller_listeners().next().is_none(), || {
            "controller.listener.names must not contain a value appearing in the 'listeners' configuration when \
             running KRaft with just the broker role"
                .into()
        })?;
        for name in &self.controller_listener_names {
            let name = normalise_listener_name(name)?;
            if !self.listener_protocols.contains_key(&name) {
                return Err(ConfigError::config(format!(
                    "Controller listener with name {name} defined in controller.listener.names not found in \
                     listener.security.protocol.map  (an explicit security mapping for each controller listener is \
                     required if listener.security.protocol.map is non-empty, or if there are security protocols other \
                     than PLAINTEXT in use)"
                )));
            }
        }
        require(!self.controller_quorum_auto_join_enable, || {
            "controller.quorum.auto.join.enable is only supported when process.roles contains the 'controller' role."
                .into()
        })?;
        if self.controller_listener_names.len() > 1 {
            let names = self.controller_listener_names.join(", ");
            self.messages.push(format!(
                "controller.listener.names has multiple entries; only the first will be used since \
                 process.roles=broker: [{names}]"
            ));
        }
        for (key, extra) in [
            ("create.topic.policy.class.name", ""),
            ("alter.config.policy.class.name", ""),
            ("num.partitions", "This configuration will be ignored in the broker role in 5.0."),
            ("default.replication.factor", "This configuration will be ignored in the broker role in 5.0."),
        ] {
            if self.was_set(key) {
                self.messages.push(format!(
                    "{key} is defined in BrokerRole. It should be defined in the ControllerRole role. {extra}"
                ));
            }
        }
        Ok(())
    }

    fn shown_voter_ids(&self) -> String {
        let ids: Vec<String> = self.quorum_voters.keys().map(i32::to_string).collect();
        format!("Set({})", ids.join(", "))
    }

    fn derive_inter_broker_listener(&self) -> Result<(String, SecurityProtocol), ConfigError> {
        let Some(name) = &self.inter_broker_listener_name_text else {
            // The table's validator admits the four names only.
            let protocol = SecurityProtocol::from_name(self.text("security.inter.broker.protocol"))
                .unwrap_or(SecurityProtocol::Plaintext);
            return Ok((protocol.name().to_owned(), protocol));
        };
        if self.was_set("security.inter.broker.protocol") {
            return Err(ConfigError::config(
                "Only one of inter.broker.listener.name and security.inter.broker.protocol should be set.",
            ));
        }
        let name = normalise_listener_name(name)?;
        match self.listener_protocols.get(&name) {
            Some(protocol) => Ok((name, *protocol)),
            None => Err(ConfigError::config(format!(
                "Listener with name {name} defined in inter.broker.listener.name not found in \
                 listener.security.protocol.map."
            ))),
        }
    }

    fn check_listeners(&mut self) -> Result<(), ConfigError> {
        if self.is_broker() {
            let advertised: BTreeSet<&str> =
                self.advertised_broker_listeners.iter().map(|e| e.listener.as_str()).collect();
            require(!advertised.is_empty(), || {
                "There must be at least one broker advertised listener. Perhaps all listeners appear in \
                 controller.listener.names?"
                    .into()
            })?;
            let inter_broker = self.derive_inter_broker_listener()?;
            require(advertised.contains(inter_broker.0.as_str()), || {
                format!(
                    "inter.broker.listener.name must be a listener name defined in advertised.listeners. The valid \
                     options based on currently configured listeners are {}",
                    join(&advertised)
                )
            })?;
            let listeners: BTreeSet<&str> = self.listeners.iter().map(|e| e.listener.as_str()).collect();
            require(advertised.is_subset(&listeners), || {
                format!(
                    "advertised.listeners listener names must be equal to or a subset of the ones defined in \
                     listeners. Found {}. The valid options based on the current configuration are {}",
                    join(&advertised),
                    join(&listeners)
                )
            })?;
            self.check_cordoned_log_dirs()?;
        }
        let unroutable = self
            .advertised_broker_listeners
            .iter()
            .chain(&self.advertised_controller_listeners)
            .any(|e| e.host.as_deref() == Some("0.0.0.0"));
        require(!unroutable, || {
            "advertised.listeners cannot use the nonroutable meta-address 0.0.0.0. Use a routable IP address."
                .into()
        })?;
        self.inter_broker_listener = self.derive_inter_broker_listener()?;
        if self.inter_broker_listener.1.uses_sasl() {
            let listener = self.inter_broker_listener.0.clone();
            let enabled = self.value_for_listener(&listener, "sasl.enabled.mechanisms")?;
            let mechanism = self.text("sasl.mechanism.inter.broker.protocol");
            require(enabled.as_list().unwrap_or_default().iter().any(|m| m == mechanism), || {
                "sasl.mechanism.inter.broker.protocol must be included in sasl.enabled.mechanisms when SASL is used \
                 for inter-broker communication"
                    .into()
            })?;
        }
        Ok(())
    }

    fn check_cordoned_log_dirs(&self) -> Result<(), ConfigError> {
        let cordoned = self.list("cordoned.log.dirs");
        if cordoned.iter().any(|dir| dir == "*") {
            return require(cordoned.len() == 1, || {
                "When cordoned.log.dirs is set to *, it must not contain other values".into()
            });
        }
        let missing: Vec<&str> =
            cordoned.iter().filter(|dir| !self.log_dirs().contains(dir)).map(String::as_str).collect();
        require(missing.is_empty(), || {
            format!(
                "All entries in cordoned.log.dirs must be present in log.dirs or log.dir. Missing entries : {}",
                missing.join(", ")
            )
        })
    }

    fn check_connections(&self) -> Result<(), ConfigError> {
        let queued = self.queued_max_request_bytes;
        require(queued <= 0 || queued >= i64::from(self.socket_request_max_bytes), || {
            "queued.max.request.bytes must be larger or equal to socket.request.max.bytes".into()
        })?;
        require(
            self.max_connections_per_ip != 0 || !self.max_connections_per_ip_overrides.is_empty(),
            || {
                "max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides property is set.".into()
            },
        )?;
        let invalid: Vec<&str> = self
            .max_connections_per_ip_overrides
            .keys()
            .filter(|address| !is_valid_host(address))
            .map(String::as_str)
            .collect();
        if !invalid.is_empty() {
            return Err(ConfigError::illegal_argument(format!(
                "max.connections.per.ip.overrides contains invalid addresses : {}",
                invalid.join(",")
            )));
        }
        let (delay, idle) = (self.connection_failed_authentication_delay_ms, self.connections_max_idle_ms);
        require(idle < 0 || i64::from(delay) < idle, || {
            format!(
                "connection.failed.authentication.delay.ms={delay} should always be less than \
                 connections.max.idle.ms={idle} to prevent failed authentication responses from timing out"
            )
        })
    }
}

fn join(names: &BTreeSet<&str>) -> String {
    names.iter().copied().collect::<Vec<_>>().join(",")
}
