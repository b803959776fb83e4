//! Services: defaults, addresses and node ports.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use apiserver::meta;
use apiserver::resource::{NameRule, Part, Strategy, WriteContext};
use apiserver::status::{ApiError, FieldError};
use apiserver::table::age;
use ipnet::IpNet;
use serde_json::{Value, json};

use super::util::{each, each_mut, is_ip, one_of, or_none, port_in_range, set_default, text};

/// Ports that nodes open for Services.
const NODE_PORTS: std::ops::RangeInclusive<i64> = 30_000..=32_767;

pub(super) struct Rules {
    /// Ranges of ClusterIPs, the primary family's first.
    pub(super) ranges: Vec<IpNet>,
}

fn family_of(range: &IpNet) -> &'static str {
    if range.addr().is_ipv4() { "IPv4" } else { "IPv6" }
}

fn has_cluster_ip(spec: &Value) -> bool {
    text(spec, "type") != "ExternalName"
}

fn opens_node_ports(spec: &Value) -> bool {
    matches!(text(spec, "type"), "NodePort" | "LoadBalancer")
}

fn is_met_from_outside(spec: &Value) -> bool {
    let named = text(spec, "type") == "ClusterIP" && each(spec, "externalIPs").next().is_some();
    opens_node_ports(spec) || named
}

fn has_health_port(spec: &Value) -> bool {
    text(spec, "type") == "LoadBalancer" && text(spec, "externalTrafficPolicy") == "Local"
}

/// Takes away what a Service of another type had.
fn drop_foreign_fields(spec: &mut Value) {
    let is_balanced = text(spec, "type") == "LoadBalancer";
    for (field, stays) in [
        ("externalTrafficPolicy", is_met_from_outside(spec)),
        ("allocateLoadBalancerNodePorts", is_balanced),
        ("loadBalancerClass", is_balanced),
        ("healthCheckNodePort", has_health_port(spec)),
    ] {
        if !stays {
            meta::set_part(spec, field, Value::Null);
        }
    }
}

impl Strategy for Rules {
    fn name_rule(&self) -> NameRule {
        NameRule::Label1035
    }

    fn default(&self, object: &mut Value) {
        set_default(object, "spec", json!({}));
        set_default(object, "status", json!({}));
        set_default(&mut object["status"], "loadBalancer", json!({}));
        let spec = &mut object["spec"];
        set_default(spec, "type", json!("ClusterIP"));
        set_default(spec, "sessionAffinity", json!("None"));
        if text(spec, "sessionAffinity") == "ClientIP" {
            let seconds = json!({ "clientIP": { "timeoutSeconds": 10_800 } });
            set_default(spec, "sessionAffinityConfig", seconds);
        }
        if has_cluster_ip(spec) {
            set_default(spec, "internalTrafficPolicy", json!("Cluster"));
        }
        if is_met_from_outside(spec) {
            set_default(spec, "externalTrafficPolicy", json!("Cluster"));
        }
        if text(spec, "type") == "LoadBalancer" {
            set_default(spec, "allocateLoadBalancerNodePorts", json!(true));
        }
        for port in each_mut(spec, "ports") {
            set_default(port, "protocol", json!("TCP"));
            let number = port["port"].clone();
            set_default(port, "targetPort", number);
        }
    }

    fn prepare_create(
        &self,
        context: &mut WriteContext<'_, '_>,
        object: &mut Value,
    ) -> Result<(), ApiError> {
        object["status"] = json!({ "loadBalancer": {} });
        self.allocate(context, object)
    }

    fn prepare_update(
        &self,
        context: &mut WriteContext<'_, '_>,
        object: &mut Value,
        old: &Value,
        part: Part,
    ) -> Result<(), ApiError> {
        if part == Part::Status {
            return Ok(());
        }
        let (spec, before) = (&mut object["spec"], &old["spec"]);
        if has_cluster_ip(spec) && has_cluster_ip(before) {
            for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
                set_default(spec, field, before[field].clone());
            }
        }
        drop_foreign_fields(spec);
        if has_health_port(spec) && has_health_port(before) {
            set_default(spec, "healthCheckNodePort", before["healthCheckNodePort"].clone());
        }
        if opens_node_ports(spec) && opens_node_ports(before) {
            for port in each_mut(spec, "ports") {
                let same = each(before, "ports")
                    .find(|old| old["port"] == port["port"] && old["protocol"] == port["protocol"]);
                if let Some(same) = same.filter(|same| !same["nodePort"].is_null()) {
                    set_default(port, "nodePort", same["nodePort"].clone());
                }
            }
        }
        if !opens_node_ports(spec) && opens_node_ports(before) {
            let numbers =
                |spec| each(spec, "ports").map(|port| port["nodePort"].clone()).collect::<Vec<_>>();
            if numbers(spec) == numbers(before) {
                for port in each_mut(spec, "ports") {
                    meta::set_part(port, "nodePort", Value::Null);
                }
            }
        }
        self.allocate(context, object)
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let spec = &object["spec"];
        let kind = text(spec, "type");
        let headless = text(spec, "clusterIP") == "None";
        if each(spec, "ports").next().is_none() && !headless && kind != "ExternalName" {
            errors.push(FieldError::required("spec.ports", ""));
        }
        let kinds = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
        one_of(&mut errors, "spec.type", kind, &kinds);
        let affinity = text(spec, "sessionAffinity");
        one_of(&mut errors, "spec.sessionAffinity", affinity, &["ClientIP", "None"]);
        if kind == "ExternalName" && text(spec, "externalName").is_empty() {
            errors.push(FieldError::required("spec.externalName", ""));
        }
        validate_ways(&mut errors, spec);
        let many = each(spec, "ports").count() > 1;
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        for (index, port) in each(spec, "ports").enumerate() {
            let at = |name: &str| format!("spec.ports[{index}].{name}");
            let name = text(port, "name");
            if many && name.is_empty() {
                errors.push(FieldError::required(&at("name"), ""));
            } else if !name.is_empty() && !seen.insert(name) {
                errors.push(FieldError::duplicate(&at("name"), name));
            }
            if port["port"].is_null() {
                errors.push(FieldError::required(&at("port"), ""));
            }
            port_in_range(&mut errors, &at("port"), &port["port"]);
            port_in_range(&mut errors, &at("targetPort"), &port["targetPort"]);
            let protocols = ["SCTP", "TCP", "UDP"];
            one_of(&mut errors, &at("protocol"), text(port, "protocol"), &protocols);
        }
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value, part: Part) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let (new, old) = (&object["spec"], &old["spec"]);
        let lasting = has_cluster_ip(new) && has_cluster_ip(old);
        if part == Part::Main && lasting && new["clusterIPs"] != old["clusterIPs"] {
            let value = &new["clusterIPs"];
            errors.push(FieldError::invalid(
                "spec.clusterIPs[0]",
                value,
                "may not change once set",
            ));
        }
        errors
    }

    fn cells(&self, object: &Value) -> Vec<Value> {
        cells(object)
    }
}

/// Whom a Service is for, and how they are led.
fn validate_ways(errors: &mut Vec<FieldError>, spec: &Value) {
    let near = ["PreferClose", "PreferSameNode", "PreferSameZone"];
    for (field, values) in [
        ("externalTrafficPolicy", &["Cluster", "Local"][..]),
        ("internalTrafficPolicy", &["Cluster", "Local"]),
        ("trafficDistribution", &near),
    ] {
        one_of(errors, &format!("spec.{field}"), text(spec, field), values);
    }
    let seconds = &spec["sessionAffinityConfig"]["clientIP"]["timeoutSeconds"];
    if seconds.as_i64().is_some_and(|seconds| !(1..=86_400).contains(&seconds)) {
        let field = "spec.sessionAffinityConfig.clientIP.timeoutSeconds";
        errors.push(FieldError::invalid(
            field,
            seconds,
            "must be greater than 0 and less than 86400",
        ));
    }
    for (index, ip) in each(spec, "externalIPs").enumerate() {
        if !ip.as_str().is_some_and(is_ip) {
            let field = format!("spec.externalIPs[{index}]");
            errors.push(FieldError::invalid(&field, ip, "must be a valid IP address"));
        }
    }
    for (index, range) in each(spec, "loadBalancerSourceRanges").enumerate() {
        let field = format!("spec.loadBalancerSourceRanges[{index}]");
        if text(spec, "type") != "LoadBalancer" {
            let why = "may only be used when `type` is 'LoadBalancer'";
            errors.push(FieldError::forbidden(&field, why));
        } else if range.as_str().is_none_or(|text| text.trim().parse::<IpNet>().is_err()) {
            let why = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
            errors.push(FieldError::invalid(&field, range, why));
        }
    }
}

impl Rules {
    fn invalid(context: &WriteContext<'_, '_>, object: &Value, error: FieldError) -> ApiError {
        ApiError::invalid(&context.resource.group_kind(), meta::name(object), vec![error])
    }

    fn allocate(
        &self,
        context: &mut WriteContext<'_, '_>,
        object: &mut Value,
    ) -> Result<(), ApiError> {
        let own = meta::uid(object).to_owned();
        let others: Vec<_> = context
            .tx
            .list("services", "")
            .into_iter()
            .filter(|other| meta::uid(other.value()) != own)
            .collect();
        if has_cluster_ip(&object["spec"]) {
            let taken: BTreeSet<String> = others
                .iter()
                .flat_map(|other| each(&other.value()["spec"], "clusterIPs"))
                .filter_map(|ip| ip.as_str().map(str::to_owned))
                .collect();
            self.allocate_addresses(&mut object["spec"], &taken)
                .map_err(|error| Self::invalid(context, object, error))?;
        } else {
            for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
                meta::set_part(&mut object["spec"], field, Value::Null);
            }
        }
        let mut taken: BTreeSet<i64> = others
            .iter()
            .flat_map(|other| {
                let spec = &other.value()["spec"];
                let ports = each(spec, "ports").map(|port| &port["nodePort"]);
                ports.chain([&spec["healthCheckNodePort"]]).filter_map(Value::as_i64)
            })
            .collect();
        allocate_node_ports(&mut object["spec"], &mut taken)
            .map_err(|error| Self::invalid(context, object, error))
    }

    fn allocate_addresses(
        &self,
        spec: &mut Value,
        taken: &BTreeSet<String>,
    ) -> Result<(), FieldError> {
        let policy = text(spec, "ipFamilyPolicy").to_owned();
        if policy == "RequireDualStack" && self.ranges.len() < 2 {
            let why = "this cluster is not configured for dual-stack services";
            return Err(FieldError::invalid("spec.ipFamilyPolicy", policy, why));
        }
        let wanted: Vec<String> =
            each(spec, "ipFamilies").filter_map(|f| f.as_str().map(str::to_owned)).collect();
        for family in &wanted {
            if !self.ranges.iter().any(|range| family_of(range) == family) {
                let why = "not configured on this cluster";
                return Err(FieldError::invalid("spec.ipFamilies[0]", family, why));
            }
        }
        let dual =
            matches!(policy.as_str(), "PreferDualStack" | "RequireDualStack") || wanted.len() > 1;
        let first = wanted.first().cloned();
        let mut families: Vec<String> = self.ranges.iter().map(|r| family_of(r).into()).collect();
        families.sort_by_key(|family| first.as_ref().is_some_and(|first| first != family));
        families.truncate(if dual { 2 } else { 1 });
        set_default(
            spec,
            "ipFamilyPolicy",
            json!(if dual { "PreferDualStack" } else { "SingleStack" }),
        );
        spec["ipFamilies"] = json!(families);

        let asked: Vec<String> = match each(spec, "clusterIPs").next() {
            Some(_) => {
                each(spec, "clusterIPs").filter_map(|v| v.as_str().map(str::to_owned)).collect()
            }
            None if text(spec, "clusterIP").is_empty() => Vec::new(),
            None => vec![text(spec, "clusterIP").to_owned()],
        };
        if asked.first().is_some_and(|ip| ip == "None") {
            spec["clusterIP"] = json!("None");
            spec["clusterIPs"] = json!(["None"]);
            return Ok(());
        }
        let refuse = |ip: &str, why: &str| {
            let why = format!("failed to allocate IP {ip}: {why}");
            FieldError::invalid("spec.clusterIPs", json!([ip]), &why)
        };
        let mut addresses = Vec::new();
        for (index, family) in families.iter().enumerate() {
            let Some(range) = self.ranges.iter().find(|range| family_of(range) == family) else {
                continue;
            };
            match asked.get(index) {
                Some(ip) if !is_ip(ip) => return Err(refuse(ip, "it is no IP address")),
                Some(ip) if !ip.parse::<IpAddr>().is_ok_and(|ip| range.contains(&ip)) => {
                    let why = "the provided network does not match the current range";
                    return Err(refuse(ip, why));
                }
                Some(ip) if taken.contains(ip) => {
                    return Err(refuse(ip, "provided IP is already allocated"));
                }
                Some(ip) => addresses.push(ip.clone()),
                None => match free_address(range, taken) {
                    Some(ip) => addresses.push(ip),
                    None => return Err(refuse("", "range is full")),
                },
            }
        }
        spec["clusterIP"] = json!(addresses.first());
        spec["clusterIPs"] = json!(addresses);
        Ok(())
    }
}

/// An address of a range that nobody has: at random first, then in order.
fn free_address(range: &IpNet, taken: &BTreeSet<String>) -> Option<String> {
    let bits = range.max_prefix_len() - range.prefix_len();
    let size: u128 = 1u128.checked_shl(u32::from(bits)).unwrap_or(u128::MAX).saturating_sub(2);
    let at = |offset: u128| -> Option<IpAddr> {
        match range.network() {
            IpAddr::V4(base) => {
                let offset = u32::try_from(offset).ok()?;
                Some(IpAddr::V4(u32::from(base).checked_add(offset)?.into()))
            }
            IpAddr::V6(base) => Some(IpAddr::V6(u128::from(base).checked_add(offset)?.into())),
        }
    };
    let free = |offset: u128| at(offset).map(|ip| ip.to_string()).filter(|ip| !taken.contains(ip));
    if size == 0 {
        return None;
    }
    (0..64)
        .map(|_| u128::from(rand::random::<u64>()) % size + 1)
        .chain(1..=size.min(1 << 17))
        .find_map(free)
}

fn allocate_node_ports(spec: &mut Value, taken: &mut BTreeSet<i64>) -> Result<(), FieldError> {
    let wants = opens_node_ports(spec) && spec["allocateLoadBalancerNodePorts"] != false;
    // One port of several protocols has one port of the nodes.
    let mut given: BTreeMap<i64, i64> = BTreeMap::new();
    for (index, port) in each_mut(spec, "ports").enumerate() {
        let number = port["port"].as_i64().unwrap_or(0);
        let wanted = port["nodePort"].as_i64().filter(|wanted| *wanted != 0);
        if !wants && wanted.is_none() {
            // Clients that send protobuf say 0 for none.
            meta::set_part(port, "nodePort", Value::Null);
            continue;
        }
        let same = given.get(&number).filter(|own| wanted.is_none_or(|wanted| wanted == **own));
        let own = match same {
            Some(own) => *own,
            None => node_port(wanted, &format!("spec.ports[{index}].nodePort"), taken)?,
        };
        given.insert(number, own);
        port["nodePort"] = json!(own);
    }
    if has_health_port(spec) {
        let wanted = spec["healthCheckNodePort"].as_i64().filter(|wanted| *wanted != 0);
        let own = node_port(wanted, "spec.healthCheckNodePort", taken)?;
        spec["healthCheckNodePort"] = json!(own);
    }
    Ok(())
}

/// The wanted port of the nodes if it is free, or any.
fn node_port(
    wanted: Option<i64>,
    field: &str,
    taken: &mut BTreeSet<i64>,
) -> Result<i64, FieldError> {
    let refuse = |number, why| Err(FieldError::invalid(field, number, why));
    let number = match wanted {
        Some(number) => {
            if !NODE_PORTS.contains(&number) {
                let why = "provided port is not in the valid range. The range of valid ports is \
                           30000-32767";
                return refuse(number, why);
            }
            number
        }
        None => {
            let random = || NODE_PORTS.start() + i64::from(rand::random::<u16>() % 2768);
            let mut free = (0..64).map(|_| random()).chain(NODE_PORTS);
            match free.find(|number| !taken.contains(number)) {
                Some(number) => number,
                None => return refuse(0, "range is full"),
            }
        }
    };
    if !taken.insert(number) {
        return refuse(number, "provided port is already allocated");
    }
    Ok(number)
}

fn cells(object: &Value) -> Vec<Value> {
    let spec = &object["spec"];
    let mut external: Vec<&str> = each(&object["status"]["loadBalancer"], "ingress")
        .map(|point| match text(point, "ip") {
            "" => text(point, "hostname"),
            ip => ip,
        })
        .collect();
    external.extend(each(spec, "externalIPs").filter_map(Value::as_str));
    let external = match text(spec, "type") {
        "ExternalName" => text(spec, "externalName").to_owned(),
        "LoadBalancer" if external.is_empty() => "<pending>".to_owned(),
        _ => or_none(&external.join(",")),
    };
    let ports: Vec<String> = each(spec, "ports")
        .map(|port| match port["nodePort"].as_i64() {
            Some(node) => format!("{}:{node}/{}", port["port"], text(port, "protocol")),
            None => format!("{}/{}", port["port"], text(port, "protocol")),
        })
        .collect();
    let selector: Vec<String> = spec["selector"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or("")))
        .collect();
    vec![
        json!(meta::name(object)),
        spec["type"].clone(),
        json!(or_none(text(spec, "clusterIP"))),
        json!(external),
        json!(or_none(&ports.join(","))),
        age(object),
        json!(or_none(&selector.join(","))),
    ]
}
